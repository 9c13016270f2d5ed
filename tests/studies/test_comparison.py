"""Values against a baseline: seeds and levels are paired, and collapsed runs take the interval away."""

import math
from dataclasses import dataclass
from pathlib import Path

import pytest

from ragen.algorithms.statistics import mean_interval, proportion_interval
from ragen.studies.comparison import (
    Comparison,
    compare,
    compare_all,
    gap_over_levels,
    how_compared,
    pair_seeds,
    to_row,
)
from ragen.studies.conditions import Condition, Curve
from ragen.studies.outcomes import Outcome
from ragen.tracking.rundir import RunDir
from tests.view.runs import episode


@dataclass
class Listed:
    name: str
    value: str
    seed: int
    run_dir: Path


def curve(value: str, seed: int, *, last: float, best: float = 0.0, status="success", folder=Path("none")) -> Curve:
    successes = [0.2, best or last, last]
    return Curve(
        run=Listed(f"{value}-{seed}", value, seed, folder),
        outcome=Outcome(status=status),
        steps=[0, 10, 20],
        estimates=[proportion_interval(round(100 * success), 100) for success in successes],
        num_episodes=100,
        num_levels=100,
    )


def condition(value: str, *lasts: float, collapsed: int = 0) -> Condition:
    curves = [curve(value, seed, last=last) for seed, last in enumerate(lasts, 1)]
    curves += [curve(value, 10 + seed, last=0.0, status="early_stopped") for seed in range(collapsed)]
    return Condition(value=value, curves=curves)


def compared(one: Condition, other: Condition) -> Comparison:
    found = compare(one, other)
    assert found is not None
    return found


def test_differences_are_those_of_pairs_of_seeds():
    found = compared(condition("a", 0.5, 0.7, 0.6, 0.9), condition("b", 0.4, 0.4, 0.6))
    gap = found.gaps["final"]
    assert (gap.num_seeds, gap.is_paired) == (3, True)
    assert gap.estimate.mean == pytest.approx((0.1 + 0.3 + 0.0) / 3)
    # The curve is 0.2, last, last: half of the first ten steps, all of the others.
    assert found.gaps["area"].estimate.mean == pytest.approx(0.75 * gap.estimate.mean)


def test_the_best_validation_is_compared_beside_the_last():
    peak = Condition(value="a", curves=[curve("a", seed, last=0.3, best=0.7) for seed in (1, 2)])
    found = compared(peak, condition("b", 0.4, 0.5))
    assert found.gaps["final"].estimate.mean == pytest.approx(-0.15)
    assert found.gaps["best"].estimate.mean == pytest.approx(0.25)


def test_arms_without_a_seed_in_common_are_compared_after_welch():
    other = Condition(value="b", curves=[curve("b", seed, last=last) for seed, last in ((7, 0.1), (8, 0.3))])
    found = compared(condition("a", 0.4, 0.6), other)
    assert not found.gaps["final"].is_paired
    assert "without seeds in common, after Welch" in how_compared([found])


def test_a_collapsed_run_takes_the_interval_away_and_leaves_the_others():
    one = condition("a", 0.5, 0.7, collapsed=1)
    assert one.final is not None and one.final.mean == pytest.approx(0.6) and math.isnan(one.final.low)
    assert one.collapse == proportion_interval(1, 3)
    found = compared(one, condition("b", 0.4, 0.4))
    assert math.isnan(found.gaps["final"].estimate.low) and math.isnan(found.corrected["final"])
    assert to_row(found)[-1] == "no verdict on the mean: runs collapsed"
    assert len(pair_seeds(one, condition("b", 0.4, 0.4))) == 2
    assert compare(condition("c", collapsed=2), one) is None, "nobody is left to compare"


def test_a_verdict_names_the_seeds_that_are_missing():
    clear = compared(condition("a", 0.80, 0.82, 0.79), condition("b", 0.40, 0.41, 0.40))
    assert clear.verdict(0.05) == "higher"
    assert compared(condition("b", 0.40, 0.41, 0.40), condition("a", 0.80, 0.82, 0.79)).verdict(0.05) == "lower"
    # Differences 0.1, -0.1, 0.03 have a deviation of 0.1015: 35 seeds for 0.05, and three are there.
    unclear = compared(condition("a", 0.5, 0.4, 0.53), condition("b", 0.4, 0.5, 0.5))
    assert unclear.verdict(0.05) == "cannot tell: about 32 more seeds for a difference of 0.05"
    assert unclear.verdict(0.5) == "no difference found; 3 seeds find one of 0.5 in four of five studies"
    assert compared(condition("a", 0.9), condition("b", 0.1)).verdict(0.05) == "cannot tell from one seed"


def test_p_is_corrected_for_the_number_of_values():
    base = condition("0", 0.40, 0.45, 0.42)
    others = [condition("1", 0.50, 0.53, 0.54), condition("2", 0.41, 0.44, 0.45)]
    first, second = compare_all([base, *others], base)
    assert first.corrected["final"] == pytest.approx(2 * first.gaps["final"].p)
    assert second.corrected["final"] == pytest.approx(second.gaps["final"].p)


def write_levels(folder: Path, flags: dict[int, bool]) -> Path:
    episodes = [episode(level, reward=float(flag), seed=level) for level, flag in flags.items()]
    RunDir(folder).write_episodes("val_step_20", episodes)
    return folder


def test_within_runs_levels_are_paired(tmp_path):
    one = curve("a", 1, last=0.5, folder=write_levels(tmp_path / "a", {1: True, 2: True, 3: False, 4: True}))
    other = curve("b", 1, last=0.5, folder=write_levels(tmp_path / "b", {1: True, 2: False, 3: False, 4: True}))
    assert gap_over_levels([(one, other)]) == mean_interval([0, 1, 0, 0], range(4))
    elsewhere = curve("b", 1, last=0.5, folder=write_levels(tmp_path / "c", {5: True}))
    assert gap_over_levels([(one, elsewhere)]) is None, "they were validated on other levels"
    assert gap_over_levels([(one, curve("b", 1, last=0.5))]) is None, "episodes are gone"


def test_seeds_that_share_a_level_are_one_cluster(tmp_path):
    pairs = []
    for seed, flags in ((1, {1: True, 2: False}), (2, {1: True, 2: False})):
        mine = curve("a", seed, last=0.5, folder=write_levels(tmp_path / f"a{seed}", flags))
        theirs = curve("b", seed, last=0.0, folder=write_levels(tmp_path / f"b{seed}", {1: False, 2: False}))
        pairs.append((mine, theirs))
    found = gap_over_levels(pairs)
    assert found == mean_interval([1, 0, 1, 0], [1, 2, 1, 2]) != mean_interval([1, 0, 1, 0], range(4))
