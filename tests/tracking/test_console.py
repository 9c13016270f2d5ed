"""One line per step in a log, one live line on a terminal, never both."""

import io
import re

import pytest
from rich.console import Console

from ragen.tracking.console import ConsoleTracker, Progression, compact, duration, progress, step_line


def a_terminal(width: int = 200) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width)


def a_file() -> Console:
    return Console(file=io.StringIO(), force_terminal=False, width=80)


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


STEP = {
    "train/A/success": 0.25,
    "train/B/success": 0.75,
    "train/A/non-zero/success": 1.0,
    "train/A/reward": -1.5,
    "rollout/filter_kept_count": 6.0,
    "rollout/filter_kept_ratio": 0.75,
    "timing_s/gen": 8.0,
    "timing_s/update_actor": 9.0,
    "timing_s/step": 17.5,
    "timing_s/train_total": 99.0,
}


def test_a_step_is_one_line_of_names_and_numbers():
    assert step_line(3, {"actor/lr": 1e-6, "n": 128, "timing_s/total": 60.0}) == (
        "step:3 - actor/lr:1e-06 - n:128 - timing_s/total:60"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1 / 3, "0.333333"),
        (-0.0001, "-0.0001"),
        (1e-9, "1e-09"),
        (7, "7"),
        (123456.789, "123456.79"),
        (1234567.0, "1234567"),
        (100000, "100000"),
        (1e20, "1e+20"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
    ],
)
def test_numbers_are_short_and_can_be_read_back(value, text):
    assert compact(value) == text
    assert float(text) == pytest.approx(value, rel=1e-5, nan_ok=True)


def test_sweeps_find_the_times_in_a_log():
    totals = {"timing_s/train_total": 86399.994, "timing_s/eval_total": 12.5, "timing_s/total": 123456.789}
    line = step_line(200, {"val-env/A/success": 0.5, **totals})
    for name, seconds in totals.items():
        found = re.search(rf"(?:^| - ){re.escape(name)}:(\S+)", line)
        assert found and float(found[1]) == pytest.approx(seconds, abs=0.5)


def test_a_log_file_gets_a_line_per_step_however_long(capsys):
    tracker = ConsoleTracker(total_steps=2)
    tracker.stage("gen")
    metrics = {f"metric/{i}": float(i) for i in range(100)}
    tracker.log(1, metrics)
    tracker.log(2, {})
    tracker.log_table(2, "t", ["a"], [[1]])
    tracker.close("finished")
    assert capsys.readouterr().out.splitlines() == [step_line(1, metrics), "step:2"]


def test_an_output_that_is_no_terminal_gets_no_live_line():
    output = a_file()
    tracker = ConsoleTracker(total_steps=2, output=output)
    tracker.log(1, STEP)
    tracker.close("finished")
    assert written(output) == step_line(1, STEP) + "\n"


def test_a_terminal_gets_the_live_line_and_no_step_lines():
    output = a_terminal()
    tracker = ConsoleTracker(total_steps=2, output=output)
    tracker.log(1, STEP)
    tracker.close("finished")
    text = written(output)
    assert "step:1" not in text
    assert "step 1/2 · success 0.5 · reward -1.5 · kept 6/8 groups" in text
    assert "update_actor 9 s, gen 8 s" in text


def test_the_live_line_stays_one_line_on_a_narrow_terminal():
    output = a_terminal(width=40)
    tracker = ConsoleTracker(total_steps=2, output=output)
    tracker.log(1, STEP)
    tracker.close("finished")
    last = written(output).strip().splitlines()[0].split("\r")[-1]
    assert "…" in last and "step 1/2" in last


def test_a_progress_bar_may_run_below_the_live_line(monkeypatch):
    output = a_terminal()
    monkeypatch.setattr("ragen.tracking.console.console", output)
    tracker = ConsoleTracker(total_steps=2, output=output)
    with progress("validating", 1) as advance:
        advance("1 solved")
    tracker.log(1, STEP)
    tracker.close("finished")
    assert "step 1/2" in written(output)


def test_time_left_is_the_mean_step_times_the_steps_left():
    now = 0.0
    line = Progression(10, clock=lambda: now)
    assert str(line) == "starting"
    now = 100.0
    line.log(0, {})  # the validation before training is no step
    assert str(line) == "step 0/10"
    now = 110.0
    line.log(1, {})
    now = 130.0
    line.log(2, {})
    assert str(line) == "step 2/10 · 2 min 0 s left"


def test_the_live_line_says_what_runs_now():
    now = 0.0
    line = Progression(None, clock=lambda: now)
    line.log(1, {})
    line.stage("step")
    assert str(line) == "step 1"
    line.stage("gen")
    now = 75.0
    assert str(line) == "step 1 · now gen 1 min 15 s"
    line.log(2, {"timing_s/gen": 75.0})
    assert str(line) == "step 2 · gen 75 s"


def test_a_step_that_keeps_no_group_says_so():
    line = Progression(None)
    line.log(1, {"rollout/filter_kept_count": 0.0, "rollout/filter_kept_ratio": 0.0})
    assert str(line) == "step 1 · kept 0 groups"


@pytest.mark.parametrize(("seconds", "text"), [(0, "0 s"), (59.4, "59 s"), (75, "1 min 15 s"), (7260, "2 h 1 min")])
def test_durations_are_in_two_units_at_most(seconds, text):
    assert duration(seconds) == text
