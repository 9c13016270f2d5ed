"""The three signals that end a run early, by hand."""

from ragen.config import load_config
from ragen.trainer.endings.early_stop import EarlyStop


def early_stop(*, empty_stop_steps: int = 2, **changes: float) -> EarlyStop:
    overrides = [f"trainer.early_stop.{key}={value}" for key, value in changes.items()]
    config = load_config("base", ["model_path=tiny", *overrides]).trainer.early_stop
    return EarlyStop(config, empty_stop_steps=empty_stop_steps)


def seen(stop: EarlyStop, *stds: float) -> list[str | None]:
    return [filtered(stop, kept=1, std=std) for std in stds]


def filtered(stop: EarlyStop, *, kept: int, std: float = 1.0) -> str | None:
    return stop.after_filter({"rollout/filter_kept_count": kept, "rollout/in_group_reward_std": std})


COLLAPSE = "reward_variance_collapse"


def test_a_whole_window_far_below_the_first_steps_is_a_collapse():
    stop = early_stop(variance_baseline_steps=2, variance_window=3, variance_factor=0.1)
    # Baseline (1 + 3) / 2 = 2, threshold 0.2.
    assert seen(stop, 1.0, 3.0) == [None, None]
    assert seen(stop, 0.1, 0.1, 0.2, 0.1, 0.1) == [None] * 5  # 0.2 is not below
    assert seen(stop, 0.1) == [COLLAPSE]


def test_the_default_is_ten_steps_against_the_first_ten():
    stop = early_stop()
    assert seen(stop, *[1.0] * 10, *[0.05] * 9) == [None] * 19
    assert seen(stop, 0.05) == [COLLAPSE]


def test_a_run_without_variance_from_the_start_has_nothing_to_lose():
    assert seen(early_stop(variance_baseline_steps=1, variance_window=1), 0.0, 0.0, 0.0) == [None] * 3


def test_a_window_of_zero_switches_the_collapse_off():
    assert seen(early_stop(variance_baseline_steps=1, variance_window=0), 1.0, 0.0, 0.0, 0.0) == [None] * 4


def low(stop: EarlyStop, **values: float) -> str | None:
    return stop.after_validation({f"val-env/{tag}/success": value for tag, value in values.items()})


def test_one_environment_that_stays_unsolved_ends_the_run():
    stop = early_stop(low_success_patience=2, min_val_success=0.01)
    assert low(stop, Bandit=0.9, Sokoban=0.0) is None
    assert low(stop, Bandit=0.0, Sokoban=0.02) is None  # each has its own count, and 0.02 starts Sokoban's again
    assert low(stop, Bandit=0.9, Sokoban=0.0) is None
    assert low(stop, Bandit=0.9, Sokoban=0.009) == "low_validation_success"


def test_only_the_success_of_sampled_validation_counts():
    stop = early_stop(low_success_patience=1)
    names = ("val-env/Bandit/non-zero/success", "val-env-greedy/Bandit/success", "train/Bandit/success")
    names += ("val-env/Bandit/success_unseen", "val-env/Bandit/success_seen", "val-env/Bandit/success_low")
    assert stop.after_validation(dict.fromkeys(names, 0.0)) is None


def test_a_patience_of_zero_switches_the_validation_stop_off():
    stop = early_stop(low_success_patience=0)
    assert [low(stop, Bandit=value) for value in (0.9, 0.0, 0.0)] == [None] * 3


def test_steps_the_filter_left_empty_are_counted_in_a_row():
    stop = early_stop(empty_stop_steps=2)
    assert [filtered(stop, kept=kept) for kept in (0, 3, 0)] == [None] * 3
    assert stop.state.num_empty == 1
    assert filtered(stop, kept=0) == "empty_filtered_steps"


def test_zero_empty_steps_never_stop():
    stop = early_stop(empty_stop_steps=0)
    assert [filtered(stop, kept=0) for _ in range(10)] == [None] * 10


def test_what_was_seen_survives_a_checkpoint():
    stop = early_stop(variance_baseline_steps=1, variance_window=2, low_success_patience=2)
    seen(stop, 1.0, 0.01)
    low(stop, Bandit=0.0)
    filtered(stop, kept=0)
    resumed = early_stop(variance_baseline_steps=1, variance_window=2, low_success_patience=2)
    resumed.load(stop.to_json())
    assert resumed.state == stop.state
    assert seen(resumed, 0.01) == [COLLAPSE]
    assert low(resumed, Bandit=0.0) == "low_validation_success"
