"""A run as a row of the list."""

import json
import subprocess
import sys

import pytest

from ragen.tracking.lock import run_lock
from ragen.tracking.run_card import begin_card, end_card
from ragen.tracking.rundir import RunDir
from ragen.tracking.validation import mean_success
from ragen.view.reading.folders import Folders
from ragen.view.reading.summary import (
    KILLED,
    SUCCESS_ITEM,
    Summaries,
    card,
    items_in,
    last_lines,
    lines_with,
    sections_of,
)
from tests.tracking.trackers import config_of_loggers
from tests.view.runs import write_run


def rows(folder, summaries=None):
    entries = Folders([folder]).entries()
    return {row["name"]: row for row in (summaries or Summaries()).rows(entries.values())}


def test_a_finished_run_says_what_it_reached(tmp_path):
    write_run(tmp_path / "a", (0.25, 0.5, 0.5))
    row = rows(tmp_path)["a"]
    assert (row["state"], row["kind"], row["step"], row["total_steps"]) == ("finished", "training", 2, 10)
    assert (row["model"], row["estimator"], row["tags"]) == ("tiny", "grpo", ["FrozenLake"])
    curve = row["validation"]["FrozenLake"]
    assert (curve["steps"], curve["success"]) == ([0, 1, 2], [0.25, 0.5, 0.5])
    assert (curve["best"], curve["best_step"]) == (0.5, 1)
    assert curve["low"][0] < 0.25 < curve["high"][0]
    assert (row["seconds_per_step"], row["seconds_left"]) == (1.0, None)


def test_the_number_of_a_run_is_the_mean_over_its_environments_as_the_commands_say(tmp_path):
    run = RunDir(tmp_path / "a")
    for step, (a, b) in enumerate([(0.25, 0.25), (1.0, 0.5), (1.0, 0.25)]):
        run.log(step, {"val-env/A/success": a, "val-env/B/success": b})
    row = rows(tmp_path)["a"]
    assert row["mean_validation"]["success"] == [0.25, 0.75, 0.625]
    assert (row["mean_validation"]["best"], row["mean_validation"]["best_step"]) == (0.75, 1)
    assert (row["validation"]["A"]["best"], row["mean_validation"]["low"]) == (1.0, [None] * 3)  # no levels are known
    levels = "val: {group_size: 1, env_configs: {tags: [A, B], n_groups: [16, 8]}}"
    run.write_config(f"es_manager:\n  train: {{env_configs: {{tags: [A, B], n_groups: [4, 4]}}}}\n  {levels}\n")
    found = mean_success({"val-env/A/success": 1.0, "val-env/B/success": 0.25}, {"A": 16, "B": 8})
    curve = rows(tmp_path)["a"]["mean_validation"]
    assert found and (curve["success"][2], curve["low"][2], curve["high"][2]) == (found.mean, found.low, found.high)


def test_a_run_without_validation_has_no_mean(tmp_path):
    RunDir(tmp_path / "a").log(1, {"train/A/success": 0.5})
    assert rows(tmp_path)["a"]["mean_validation"] is None


def test_a_run_at_work_holds_its_lock_and_a_killed_one_does_not(tmp_path):
    folder = write_run(tmp_path / "a", state="running")
    code = f"import sys, pathlib, ragen.tracking.lock as lock\nwith lock.run_lock(pathlib.Path({str(folder)!r})):\n"
    code += "    print('held', flush=True)\n    sys.stdin.read()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout and process.stdout.readline() == "held\n"
    row = rows(tmp_path)["a"]
    assert (row["state"], row["seconds_left"]) == ("running", 9.0)
    process.kill()
    process.communicate()
    assert (rows(tmp_path)["a"]["state"], rows(tmp_path)["a"]["reason"]) == ("killed", KILLED)


def test_looking_keeps_no_run_from_starting(tmp_path):
    folder = write_run(tmp_path / "a", state="running")
    with run_lock(folder):
        pass
    assert rows(tmp_path)["a"]["state"] == "killed"
    with run_lock(folder):
        assert rows(tmp_path)["a"]["state"] == "running"


def test_without_a_lock_a_run_is_believed(tmp_path):
    write_run(tmp_path / "a", state="running")
    assert rows(tmp_path)["a"]["state"] == "running"


@pytest.mark.parametrize("state", ["early_stopped", "interrupted", "failed"])
def test_every_ending_is_told(tmp_path, state):
    RunDir(tmp_path / "a").write_status(state, "why", step=3, early_stop="low_validation_success", cause="no variance")
    row = rows(tmp_path)["a"]
    assert (row["state"], row["reason"], row["step"]) == (state, "why", 3)
    assert (row["early_stop"], row["cause"]) == ("low_validation_success", "no variance")


def test_only_what_changed_is_read_again(tmp_path):
    summaries, folder = Summaries(), write_run(tmp_path / "a")
    assert rows(tmp_path, summaries)["a"]["step"] == 1
    run = RunDir(folder)
    run.log(2, {"val-env/FrozenLake/success": 0.75})
    assert rows(tmp_path, summaries)["a"]["validation"]["FrozenLake"]["success"] == [0.25, 0.5, 0.75]
    run.truncate_after(0)
    row = rows(tmp_path, summaries)["a"]
    assert (row["step"], row["validation"]["FrozenLake"]["success"]) == (0, [0.25])


def test_an_evaluation_is_told_from_a_training(tmp_path):
    run = RunDir(tmp_path / "e")
    run.log(0, {"sampled/FrozenLake/success": 0.5, "random/FrozenLake/success": 0.1})
    run.write_status("finished")
    row = rows(tmp_path)["e"]
    assert (row["kind"], row["validation"]["FrozenLake"]["success"]) == ("evaluation", [0.5])


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 300, b'{"state": 3, "tags": 4}'])
def test_broken_files_break_nothing(tmp_path, content):
    folder = tmp_path / "a"
    folder.mkdir()
    for name in ("status.json", "config.yaml", "preflight.json", "card.json", "metrics.jsonl"):
        (folder / name).write_bytes(content)
    assert rows(tmp_path)["a"]["state"] == "unknown"
    assert json.dumps(card(folder))


def test_the_card_has_configuration_references_and_checkpoints(tmp_path):
    folder = write_run(tmp_path / "a")
    policies = {"random": {"success": 0.1}, "solver": {"success": 1.0}, "silent": {"success": 0.0}}
    (folder / "preflight.json").write_text(json.dumps({"tags": {"FrozenLake": {"policies": policies}}}))
    for step in (10, 2):
        (folder / f"global_step_{step}").mkdir()
    RunDir(folder).log_table(1, "rollout/reward_table", ["group"], [[1]])
    found = card(folder)
    assert found["config"]["trainer.total_training_steps"] == 10
    assert found["references"] == {"FrozenLake": {"random": 0.1, "solver": 1.0}}
    assert found["checkpoints"] == ["global_step_2", "global_step_10"]
    assert found["tables"] == ["rollout.reward_table_step_1"]
    assert found["status"]["state"] == "finished"


def test_the_run_card_is_shown_where_there_is_one(tmp_path):
    folder = write_run(tmp_path / "a")
    assert card(folder)["run_card"] == []
    begin_card(folder, config_of_loggers(), device="cpu", from_step=0)
    assert [section["title"] for section in card(folder)["run_card"]] == ["What was run", "Versions and machine"]
    end_card(folder)
    assert card(folder)["run_card"][0]["rows"][0] == ("state", "finished")
    content = json.loads((folder / "card.json").read_text())
    for broken in ({"counts": 3}, {"attempts": []}, {"attempts": [{}]}, {"run": None}, {"seconds": {"parts": 1}}):
        (folder / "card.json").write_text(json.dumps(content | broken))
        assert card(folder)["run_card"] == []


def test_a_run_carries_what_the_rules_say_of_it(tmp_path):
    run = RunDir(tmp_path / "a")
    for step in range(12):
        run.log(step, {"train/FrozenLake/success": 0.0, "rollout/in_group_reward_std": 0.0})
    run.write_status("finished")
    row = rows(tmp_path)["a"]
    assert row["is_advised"] is True
    assert any(each["severity"] == "alarm" and each["title"] and each["evidence"] for each in row["advisories"])


def test_a_list_does_not_wait_for_all_advisories(tmp_path, monkeypatch):
    monkeypatch.setattr("ragen.view.reading.summary.ADVISING_S", -1.0)
    summaries = Summaries()
    write_run(tmp_path / "a")
    assert rows(tmp_path, summaries)["a"]["is_advised"] is False
    assert summaries.row(Folders([tmp_path]).find("0/a"))["is_advised"] is True
    assert rows(tmp_path, summaries)["a"]["is_advised"] is True


def test_of_a_line_only_the_successes_are_read():
    line = b'{"step":3,"a":1.0,"val-env/A/success":0.5,"val-env/A/success_low":0.25,"val-env/A/pass@1":0.5}'
    assert items_in(line, SUCCESS_ITEM) == b'{"step":3,"val-env/A/success":0.5,"val-env/A/success_low":0.25}'
    assert items_in(b'{"train/A/success":0.5}', SUCCESS_ITEM) == b""


def test_lines_are_found_by_a_mark_and_from_the_end():
    assert list(lines_with(b"a1a\nb\na2\n", b"a")) == [b"a1a", b"a2"]
    assert list(lines_with(b"", b"a")) == []
    assert last_lines(b"a\nb\nc\n", 2) == [b"b", b"c"]
    assert last_lines(b"a\nb\n", 5) == [b"a", b"b"]
    assert last_lines(b"", 2) == []


def test_a_run_that_validates_greedily_alone_shows_that(tmp_path):
    run = RunDir(tmp_path / "a")
    run.log(0, {"sampled/A/success": 0.1, "timing_s/step": 2.0})
    run.log(1, {"val-env-greedy/A/success": 0.5, "timing_s/step": 4.0})
    row = rows(tmp_path)["a"]
    assert (row["validation"]["A"]["success"], row["seconds_per_step"], row["step"]) == ([0.5], 3.0, 1)


def test_of_a_configuration_only_the_needed_sections_are_read():
    config = (
        "model_path: x  # a: b\nactor:\n  trainer: 1\ntrainer:  # c\n  project_name: 1\n    deep: 1\n\n# d\n  b: 2\n"
    )
    assert sections_of(config) == "model_path: x  # a: b\ntrainer:  # c\n  project_name: 1\n    deep: 1\n\n# d\n"
    assert sections_of("trainer: {project_name: 1, b: 2}\n") == "trainer: {project_name: 1, b: 2}\n"
    assert sections_of("other: 1\n") == "{}"
