"""A short line per step in a log, a live display on a terminal, never both; nothing is cut at 80 columns."""

import io
import re
import time
from datetime import datetime
from pathlib import Path

import pytest
from rich.console import Console

from ragen.algorithms.statistics import Estimate
from ragen.config import load_config
from ragen.tracking.console import Pulse, progress, waiting
from ragen.tracking.tracker import RunFacts
from ragen.tracking.tracker import console as console_of
from ragen.tracking.trackers.console_tracker import ConsoleTracker, Glance, sparkline, step_line

NOW = datetime(2026, 11, 16, 9, 30, 5)
STEP = {
    "train/A/success": 0.25,
    "train/B/success": 0.75,
    "train/A/non-zero/success": 1.0,
    "rollout/filter_kept_count": 6.0,
    "rollout/filter_dropped_count": 2.0,
    "actor/kl_loss": 0.00123,
    "actor/ppo_kl": 9.0,
    "actor/entropy": 0.7181,
    "train/response_length": 45.4,
    "timing_s/gen": 8.0,
}
HUGE = {
    "train/A/success": 1.0,
    "rollout/filter_kept_count": 123456.0,
    "rollout/filter_dropped_count": 0.0,
    "actor/kl_loss": -1.2345e-105,
    "actor/entropy": -1.2345e-105,
    "train/response_length": 1234567.0,
}
HALF = Estimate(0.5, 0.375, 0.625)


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def a_terminal(width: int = 80) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, height=24, color_system=None)


def a_file() -> Console:
    return Console(file=io.StringIO(), force_terminal=False, width=80)


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def a_tracker(output: Console, clock: Clock | None = None, **changes) -> ConsoleTracker:
    settings = {"total_steps": 20, "output": output, "clock": clock or Clock(), "now": lambda: NOW}
    return ConsoleTracker(**settings | changes)


def screen(tracker: ConsoleTracker) -> list[str]:
    """What the live display shows now, on a terminal of 80 columns."""
    output = a_terminal()
    output.print(tracker._render())
    return [line.rstrip() for line in written(output).splitlines()]


def test_a_log_gets_one_short_line_per_step():
    output, clock = a_file(), Clock()
    tracker = a_tracker(output, clock)
    tracker.stage("testing")
    tracker.validated(0, {"A": HALF}, HALF)
    tracker.log(0, {"val-env/A/success": 0.5})
    clock.seconds = 2.5
    tracker.log(1, STEP)
    tracker.close("finished")
    assert written(output).splitlines() == [
        "2026-11-16 09:30:05  step 0/20  val 0.500 [0.375, 0.625]",
        "2026-11-16 09:30:05  step 1/20  success 0.500  kept 6/8  KL 0.00123  entropy 0.718  length 45  2.5 s/step"
        "  48 s left",
    ]


def wait_for(output: Console, start: str) -> None:
    deadline = time.monotonic() + 60
    while not any(line.startswith(start) for line in written(output).splitlines()):
        assert time.monotonic() < deadline, f"{start!r} is not in {written(output)!r}"
        time.sleep(0.01)


def test_a_resumed_run_stands_at_the_step_of_its_checkpoint():
    config = load_config("quickstart", ["trainer.logger=[console]"])
    tracker = console_of(RunFacts(config=config, path=Path(), total_steps=20, resumed_step=7))
    assert isinstance(tracker, ConsoleTracker) and tracker._glance.count == "step 7/20"
    tracker.close("finished")
    assert a_tracker(a_file(), resumed_step=None)._glance.count == "step 0/20"


def test_a_log_says_how_far_a_long_stage_is_also_while_no_episode_ends():
    output, clock = a_file(), Clock()
    tracker = a_tracker(output, clock, every_s=0.01)
    tracker.stage("gen")
    tracker.begin_episodes(128)
    clock.seconds = 30.0
    wait_for(output, "2026-11-16 09:30:05  step 0/20  now gen, 0/128 episodes, 30 s")
    for _ in range(3):
        tracker.end_episode()
    clock.seconds = 60.0
    wait_for(output, "2026-11-16 09:30:05  step 0/20  now gen, 3/128 episodes, 1 min 0 s")
    tracker.log(1, {"train/A/success": 0.5})
    tracker.close("finished")
    # Between two stages there is nothing to say, and nothing is said any more.
    assert (
        written(output).splitlines()[-1] == "2026-11-16 09:30:05  step 1/20  success 0.500  60 s/step  19 min 0 s left"
    )


def test_a_pulse_waits_for_quiet_and_ends_with_its_reader():
    said: list[str] = []
    pulse = Pulse(lambda: said.append("working"), every_s=60)
    pulse.postpone()
    pulse.close()
    assert said == []

    def to_nobody() -> None:
        said.append("lost")
        raise BrokenPipeError

    pulse = Pulse(to_nobody, every_s=0.01)
    pulse._thread.join(60)
    assert said == ["lost"] and not pulse._thread.is_alive()
    pulse.close()


def test_what_is_waited_for_is_said_now_and_then():
    output = a_file()
    with waiting("Loading models", output=output, every_s=0.01):
        wait_for(output, "Loading models: 0 s by now")
    said = written(output)
    assert written(output) == said, "nothing is said once it is there"


def test_long_work_is_a_line_now_and_then_in_a_log_and_a_bar_on_a_terminal():
    output = a_file()
    with progress("playing", 5, output=output, every_s=0.01) as advance:
        wait_for(output, "playing: 0 of 5, ")
        advance()
        advance()
        wait_for(output, "playing: 2 of 5, ")
    with progress("playing", 5, output=(terminal := a_terminal()), every_s=0.01) as advance:
        advance()
    assert "1 of 5" not in written(terminal)


def test_the_longest_line_has_fewer_than_160_characters():
    output, clock = a_file(), Clock()
    tracker = a_tracker(output, clock, total_steps=999999)
    tracker.validated(123456, {}, HALF)
    clock.seconds = 12345.0
    tracker.log(123456, HUGE)
    (line,) = written(output).splitlines()
    assert "val 0.500 [0.375, 0.625]" in line and line.endswith(" left") and len(line) < 160


def test_full_brings_every_metric_into_the_line_also_on_a_terminal():
    for output in (a_file(), a_terminal()):
        tracker = a_tracker(output, style="full")
        tracker.validated(1, {"A": HALF}, HALF)
        metrics = {f"metric/{i}": float(i) for i in range(100)}
        tracker.log(1, metrics)
        tracker.close("finished")
        assert written(output) == step_line(1, metrics) + "\n"


def test_the_full_line_is_names_and_numbers():
    totals = {"timing_s/train_total": 86399.994, "timing_s/total": 123456.789}
    line = step_line(3, {"actor/lr": 1e-6, "n": 128, **totals})
    assert line.startswith("step:3 - actor/lr:1e-06 - n:128 - ")
    for name, seconds in totals.items():
        found = re.search(rf"(?:^| - ){re.escape(name)}:(\S+)", line)
        assert found and float(found[1]) == pytest.approx(seconds, abs=0.5)


def test_the_live_display_shows_bar_curve_and_numbers_without_a_cut_at_80_columns():
    output, clock = a_terminal(), Clock()
    tracker = a_tracker(output, clock)
    for step in range(1, 31):
        clock.seconds += 3.0
        tracker.log(step, STEP)
    tracker.stage("gen")
    tracker.begin_episodes(128)
    for _ in range(5):
        tracker.end_episode()
    clock.seconds += 75
    lines = screen(tracker)
    tracker.close("finished")
    assert lines[0].startswith("step 30/20  ━━━") and lines[0].endswith("0 s left  3 s/step")
    assert lines[1:] == [
        "success 0.500 " + 24 * "▅" + "  kept 6/8  KL 0.00123  entropy 0.718",
        "length 45",
        "now gen, 5/128 episodes, 1 min 15 s",
    ]
    assert all(len(line) <= 80 for line in lines)


def test_a_validation_leaves_a_line_on_the_terminal_and_steps_leave_none():
    output = a_terminal()
    tracker = a_tracker(output)
    successes = {"FrozenLake": HALF, "ALongNamedEnvironment": HALF, "AnotherOne": Estimate(1.0, float("nan"), 1.0)}
    tracker.validated(10, successes, HALF)
    tracker.log(10, STEP)
    tracker.close("finished")
    text = written(output)
    assert (
        "09:30:05 validation at step 10: FrozenLake 0.500 [0.375, 0.625], ALongNamedEnvironment 0.500 [0.375, 0.625], "
        "AnotherOne 1.000" in text
    )
    assert "step:10" not in text and "2026-11-16" not in text


def test_what_is_said_is_no_markup():
    output = a_terminal()
    tracker = a_tracker(output)
    tracker.announce("[bold]x[/nope] :smile:")
    tracker.close("finished")
    assert "[bold]x[/nope] :smile:" in written(output)


def test_a_progress_bar_may_run_below_the_live_display(monkeypatch):
    output = a_terminal()
    monkeypatch.setattr("ragen.tracking.console.console", output)
    tracker = a_tracker(output)
    with progress("validating", 1) as advance:
        advance("1 solved")
    tracker.log(1, STEP)
    tracker.close("finished")
    assert "step 1/20" in written(output)


def test_time_left_is_the_mean_step_times_the_steps_left():
    clock = Clock()
    glance = Glance(10, clock)
    clock.seconds = 100.0
    glance.log(0, {})  # the validation before training is no step
    assert glance.pace() == []
    clock.seconds = 110.0
    glance.log(1, {})
    clock.seconds = 130.0
    glance.log(2, {})
    assert glance.pace() == ["20 s/step", "2 min 0 s left"]


def test_a_step_that_keeps_no_group_says_of_how_many():
    glance = Glance(None)
    glance.log(1, {"rollout/filter_kept_count": 0.0, "rollout/filter_dropped_count": 8.0})
    assert glance.numbers() == ["kept 0/8"]


def test_supervised_training_shows_its_losses():
    glance = Glance(None)
    glance.log(1, {"sft/train_loss": 1.5, "sft/val_loss": 1.25})
    assert glance.numbers() == ["loss 1.5", "val loss 1.25"]


def test_a_curve_has_eight_heights():
    assert sparkline([0.0, 0.5, 1.0, 2.0, -1.0]) == "▁▅██▁"
    assert sparkline([0.0, 0.5, 1.0], is_plain=True) == "_=#"
