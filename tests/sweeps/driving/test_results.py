"""How runs ended: records, lines and what counts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ragen.sweeps.driving.results import fields_of, outcome_before, write_result
from tests.sweeps.sweeping import runs_of_all_kinds, script_run, work, writing


def test_result_lines(tmp_path):
    runs = {run.name: run for run in runs_of_all_kinds(tmp_path)}
    outcomes, _, _ = work(list(runs.values()))
    lines = {name: replace(outcomes[name], wall_time=7.4).text for name in runs}
    times = "train_time=1.50s | eval_time=N/A | total_time=2.00s | wall_time=7s"
    assert lines["good"] == f"value=good | {times} | gpu=1xH100 | status=success\n"
    assert lines["early"].endswith(" | status=early_stopped | early_stop=reward_variance_collapse\n")
    unknown = "train_time=N/A | eval_time=N/A | total_time=N/A | wall_time=7s"
    assert lines["bad"] == f"value=bad | {unknown} | gpu=1xH100 | status=fail\n    about to fail / no such model\n"
    assert fields_of(replace(runs["good"], seed=2)) == {"value": "good", "seed": "2"}
    assert fields_of(replace(runs["good"], has_score=True)) == {"value": "good", "score": "N/A"}


def test_the_outcome_of_a_run_of_an_earlier_sweep(tmp_path):
    script = writing(tmp_path / "runs/a", "early_stopped", early_stop="low_validation_success", cause="silence pays")
    run = script_run(tmp_path, "a", script)
    outcomes, _, _ = work([run])
    assert outcome_before(run).wall_time == 1.0, "without a record the trainer's clock counts"
    run.result.write_text("value=a | wall_time=7s | gpu=8xH100 | status=success")
    assert (outcome_before(run).wall_time, outcome_before(run).device) == (1.0, "N/A"), "the line is for people"
    write_result(run, replace(outcomes["a"], wall_time=42.0))
    record = json.loads(run.result_record.read_text())
    assert (record["name"], record["status"], record["fields"]) == ("a", "early_stopped", {"value": "a"})
    assert run.result.read_text() == replace(outcomes["a"], wall_time=42.0).text
    before = outcome_before(run)
    assert (before.status, before.stop) == ("early_stopped", "low_validation_success: silence pays")
    assert run.result.read_text().endswith(" | early_stop=low_validation_success | cause=silence pays\n")
    (run.run_dir / "status.json").write_text(json.dumps({"state": "early_stopped", "early_stop": "b", "seconds": 1.0}))
    assert outcome_before(run).stop == "b", "runs of older versions name no cause"
    assert (before.wall_time, before.device, before.times["train_time"]) == (42.0, "1xH100", 1.5)


def test_a_run_that_was_killed_says_by_which_signal(tmp_path):
    script = "print('step 1', flush=True); import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    outcomes, _, _ = work([script_run(tmp_path, "a", script)])
    assert outcomes["a"].last_lines == ("killed by signal 9 (Killed)", "step 1")


@pytest.mark.parametrize(
    ("state", "code", "status"),
    [
        ("early_stopped", 3, "early_stopped"),  # a result, also where nothing was learned
        ("early_stopped", 1, "fail"),
        ("finished", 3, "fail"),
        ("failed", 3, "fail"),
    ],
)
def test_the_status_counts_before_the_exit_code_where_a_run_stopped_early(tmp_path, state, code, status):
    script = writing(tmp_path / "runs/a", state, early_stop="empty_filtered_steps") + f"\nraise SystemExit({code})"
    outcomes, _, _ = work([script_run(tmp_path, "a", script)])
    assert outcomes["a"].status == status
    assert outcomes["a"].early_stop == ("empty_filtered_steps" if status == "early_stopped" else None)
