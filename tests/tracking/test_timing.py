"""Times add up within a step, and totals survive a resume."""

import json

import pytest

from ragen.tracking.timing import Timers


class Clock:
    """A clock that moves when told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def spend(timers: Timers, clock: Clock, **stages: float) -> None:
    """One step whose stages take the given seconds; `other` is outside any stage."""
    with timers("step"):
        clock.now += stages.pop("other", 0.0)
        for stage, seconds in stages.items():
            with timers(stage):
                clock.now += seconds


def test_a_stage_entered_twice_is_the_sum(clock):
    timers = Timers(clock=clock)
    for seconds in (1, 2):
        with timers("gen"):
            clock.now += seconds
    assert timers.finish_step()["timing_s/gen"] == 3


def test_training_time_is_the_step_without_validation_checkpoint_and_collapse_metrics(clock):
    timers = Timers(clock=clock)
    spend(timers, clock, gen=3, testing=2, save_checkpoint=1, collapse_metrics=4, other=0.5)
    metrics = timers.finish_step()
    assert metrics["timing_s/step"] == 10.5
    assert metrics["timing_s/train_step"] == 3.5
    assert metrics["timing_s/eval_step"] == metrics["timing_s/testing"] == 2


def test_training_time_is_never_negative(clock):
    timers = Timers(clock=clock)
    with timers("step"):
        timers.add("testing", 5.0)
    assert timers.finish_step()["timing_s/train_step"] == 0


def test_a_new_step_starts_from_zero_and_totals_go_on(clock):
    timers = Timers(clock=clock)
    spend(timers, clock, gen=3, testing=2)
    timers.finish_step()
    spend(timers, clock, gen=1)
    metrics = timers.finish_step()
    assert "timing_s/testing" not in metrics
    assert metrics["timing_s/eval_step"] == 0
    assert metrics["timing_s/train_total"] == 4
    assert metrics["timing_s/eval_total"] == 2
    assert metrics["timing_s/total"] == 6


def test_validation_before_training_is_a_step_of_its_own(clock):
    timers = Timers(clock=clock)
    with timers("testing"):
        clock.now += 2
    metrics = timers.finish_step()
    assert (metrics["timing_s/step"], metrics["timing_s/train_step"], metrics["timing_s/eval_total"]) == (2, 0, 2)


def test_collapse_times_have_totals(clock):
    timers = Timers(clock=clock)
    for _ in range(2):
        with timers("step"), timers("collapse_metrics"):
            for stage in ("collapse_first_turn_step", "collapse_multi_turn_step"):
                with timers(stage):
                    clock.now += 1
        metrics = timers.finish_step()
    assert metrics["timing_s/collapse_total"] == 4
    assert metrics["timing_s/collapse_first_turn_total"] == metrics["timing_s/collapse_multi_turn_total"] == 2


def test_a_stage_that_raises_counts(clock):
    timers = Timers(clock=clock)
    with pytest.raises(ValueError), timers("gen"):
        clock.now += 1
        raise ValueError
    assert timers.finish_step()["timing_s/gen"] == 1


def test_time_per_token_is_in_milliseconds_for_stages_that_ran(clock):
    timers = Timers(clock=clock)
    spend(timers, clock, gen=2)
    metrics = timers.finish_step(num_tokens=1000)
    assert metrics["timing_per_token_ms/gen"] == 2
    assert "timing_per_token_ms/ref" not in metrics
    spend(timers, clock, gen=2)
    assert "timing_per_token_ms/gen" not in timers.finish_step(num_tokens=0)


def test_throughput_is_tokens_per_second_and_device(clock):
    timers = Timers(clock=clock)
    spend(timers, clock, gen=2)
    metrics = timers.finish_step(num_tokens=800, num_devices=4)
    assert metrics["perf/throughput"] == 100
    assert (metrics["perf/time_per_step"], metrics["perf/total_num_tokens"]) == (2, 800)


def test_totals_continue_after_a_resume(clock):
    timers = Timers(clock=clock)
    spend(timers, clock, gen=3, testing=0.1)
    timers.finish_step()
    resumed = Timers(clock=clock)
    resumed.load(json.loads(json.dumps(timers.to_json())))
    assert resumed.to_json() == timers.to_json()
    spend(resumed, clock, gen=1)
    assert resumed.finish_step()["timing_s/train_total"] == pytest.approx(4)


def test_a_step_that_was_saved_before_its_end_keeps_the_time_of_its_first_part(clock):
    """3 s of a rollout and 2 s outside of stages, a kill, and 1 s of validation in the next process."""
    timers, resumed = Timers(clock=clock), Timers(clock=clock)
    with timers("step"):
        clock.now += 2
        with timers("gen"):
            clock.now += 3
        state = json.loads(json.dumps(timers.to_json()))
    clock.now += 1000
    resumed.load(state)
    resumed.continue_step()
    spend(resumed, clock, testing=1)
    metrics = resumed.finish_step(num_tokens=60)
    assert [metrics[f"timing_s/{stage}"] for stage in ("step", "gen", "testing", "train_total")] == [6, 3, 1, 5]
    assert metrics["perf/throughput"] == 10
    spend(resumed, clock, gen=1)
    assert resumed.finish_step()["timing_s/step"] == 1


def test_stages_are_announced_and_the_device_is_waited_for(clock):
    stages, waits = [], []
    timers = Timers(on_stage=stages.append, synchronize=lambda: waits.append(clock.now), clock=clock)
    with timers("gen"):
        clock.now += 1
    assert stages == ["gen"]
    assert waits == [100, 101]
