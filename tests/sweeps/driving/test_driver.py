"""The driver that sweeps, helpers, the study and the search share."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from dataclasses import replace

import pytest

from ragen.config import load_config
from ragen.errors import ConfigError, Interrupted
from ragen.studies.outcomes import Outcome
from ragen.sweeps.driving.driver import drive, kept_checkpoints, plan_line
from ragen.sweeps.driving.slots import Slot
from tests.sweeps.sweeping import runs_of_all_kinds, script_run, writing

SLOT = [Slot(devices="", size=1, label="1xCPU")]


def test_outcomes_come_in_the_order_of_the_values_with_records_and_a_summary(tmp_path, capsys):
    runs = [replace(run, value=value) for run, value in zip(runs_of_all_kinds(tmp_path)[:3], ("1", "2", "1"))]
    outcomes = drive(runs, SLOT, title="Three", header=["=== Three ==="], summary=tmp_path / "three.log")
    assert outcomes is not None
    assert [(name, outcome.status) for name, outcome in outcomes.items()] == [
        ("good", "success"),
        ("bad", "fail"),
        ("early", "early_stopped"),
    ]
    for run in runs:
        record = json.loads(run.result_record.read_text())
        assert (record["name"], record["status"]) == (run.name, outcomes[run.name].status)
        assert run.result.read_text() == outcomes[run.name].text
    texts = [run.result.read_text() for run in runs]
    summary = (tmp_path / "three.log").read_text()
    assert summary == "=== Three ===\n\n" + "".join(texts) + "\n=== Summary ===\n" + texts[0] + texts[2] + texts[1]
    assert f"Summary: {tmp_path / 'three.log'}" in capsys.readouterr().out


def test_a_run_that_has_ended_is_left_out_unless_it_is_asked_for(tmp_path, capsys):
    script = writing(tmp_path / "runs/a", "finished") + "print('once more')"
    run = script_run(tmp_path, "a", script)
    first = drive([run], SLOT, title="a")
    written = run.log.stat().st_mtime_ns
    assert drive([run], SLOT, title="a") == first, "wall time and device are those of the record"
    assert run.log.stat().st_mtime_ns == written
    assert "a: done before" in capsys.readouterr().out
    drive([run], SLOT, title="a", skip_done=False)
    assert run.log.stat().st_mtime_ns > written


def test_a_dry_run_prints_what_would_be_done_and_writes_nothing(tmp_path, capsys):
    done = script_run(tmp_path, "a", writing(tmp_path / "runs/a", "finished"))
    drive([done], SLOT, title="a")
    begun = script_run(tmp_path, "b", "pass")
    begun.run_dir.mkdir()
    (begun.run_dir / "latest_checkpointed_iteration.txt").write_text("3")
    runs = [done, begun, script_run(tmp_path, "c", "pass")]
    capsys.readouterr()
    slots = [Slot(devices=gpu, size=1, label="1xH100") for gpu in "45"]
    assert drive(runs, slots, title="Three", summary=tmp_path / "x.log", is_dry=True) is None
    output = capsys.readouterr().out
    assert output.startswith("Three: 3 runs on 2 slots (1xH100, 1xH100), a dry run\n")
    assert "# a (done before, skipped)" in output
    assert "# b (resumes from its newest checkpoint)" in output and "# c (new)" in output
    commands = [line.split()[1] for line in output.splitlines() if line.startswith("env ")]
    assert commands == ["CUDA_VISIBLE_DEVICES=4", "CUDA_VISIBLE_DEVICES=5"]
    assert not (tmp_path / "x.log").exists() and not begun.log.exists()


def test_the_plan_is_printed_before_the_first_run_with_the_time_of_those_that_ended(tmp_path, capsys):
    runs = [script_run(tmp_path, name, writing(tmp_path / "runs" / name, "finished")) for name in "abc"]
    drive(runs[:1], SLOT, title="x")
    assert "to do" not in capsys.readouterr().out, "one run is no plan"
    drive(runs[1:], SLOT, title="x")
    assert "x: 2 of 2 runs to do, 1 at a time; the time is known when a run has ended.\n" in capsys.readouterr().out
    done = {"a": Outcome(status="success", wall_time=60.0)}
    line = plan_line("x", runs, done, num_slots=4, num_bytes=1_500_000_000)
    expected = (
        "2 of 3 runs to do, 2 at a time; about 1.5 GB of checkpoints; about 1 min 0 s by the runs that have ended."
    )
    assert line == f"x: {expected}"


@pytest.mark.parametrize(("keep", "save_freq", "expected"), [(1, 10, 1), (None, 10, 3), (5, 10, 3), (None, -1, 0)])
def test_checkpoints_that_stay(keep, save_freq, expected):
    trainer = load_config("base").trainer
    settings = {"total_training_steps": 25, "save_freq": save_freq, "max_actor_ckpt_to_keep": keep}
    assert kept_checkpoints(replace(trainer, **settings)) == expected


def test_two_runs_do_not_share_a_directory(tmp_path):
    runs = [replace(script_run(tmp_path, name, "pass"), run_dir=tmp_path / "one") for name in "ab"]
    with pytest.raises(ConfigError, match=f"a and b would both write into {tmp_path / 'one'}"):
        drive(runs, SLOT, title="two")


def test_a_signal_ends_the_runs_and_names_the_command_that_resumes(tmp_path):
    ready = tmp_path / "ready"
    run = script_run(tmp_path, "a", f"import pathlib, time; pathlib.Path({str(ready)!r}).touch(); time.sleep(60)")

    def send() -> None:
        while not ready.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=send, daemon=True).start()
    with pytest.raises(Interrupted, match="by SIGTERM: no run is left behind, and `this` resumes"):
        drive([run], SLOT, title="a", summary=tmp_path / "a.log", resume_with="`this`")
    assert "KeyboardInterrupt" in run.log.read_text()
    assert (
        (tmp_path / "a.log")
        .read_text()
        .endswith(
            "value=a | train_time=N/A | eval_time=N/A | total_time=N/A | wall_time=N/A | gpu=N/A | status=missing\n"
        )
    )
