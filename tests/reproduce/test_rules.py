"""From numbers to verdicts."""

import math

import pytest

from ragen.reproduce.rules import (
    above,
    all_of,
    any_of,
    arm_points,
    below,
    better,
    by_seed,
    final,
    finding,
    gain,
    mean_success,
    share_above,
    table_points,
)
from tests.reproduce.evidence import evidence, successes


def test_a_mean_whose_interval_lies_above_the_bound_holds():
    ruling = above([0.2, 0.3, 0.4], 0)
    assert ruling.verdict == "holds"
    assert (ruling.estimate.mean, ruling.estimate.low) == pytest.approx((0.3, 0.3 - 4.303 * 0.1 / math.sqrt(3)))


def test_a_difference_too_small_to_matter_does_not_hold():
    assert above([0.01, -0.01, 0.0, 0.01, -0.01], 0, margin=0.05).verdict == "does not hold"
    assert above([-0.2, -0.3, -0.25], 0, margin=0.05).verdict == "does not hold"


def test_in_between_the_seeds_that_would_tell_are_named():
    ruling = above([0.3, -0.3, 0.1, 0.0], 0, margin=0.1)
    assert ruling.verdict == "cannot tell"
    assert ruling.seeds_needed is not None and ruling.seeds_needed > 20


def test_two_seeds_tell_nothing():
    assert above([0.5, 0.6], 0).verdict == "cannot tell"
    assert above([math.nan, math.nan], 0).verdict == "cannot tell"


def test_seeds_without_the_number_are_no_reason_for_more_of_them():
    assert above([0.5, 0.6], 0).seeds_needed == 3
    assert above([0.5, 0.6, math.nan, math.nan, math.nan], 0).seeds_needed is None


def test_equal_seeds_are_judged_by_their_number():
    assert above([1.0, 1.0, 1.0], 0.8).verdict == "holds"
    assert above([0.5, 0.5, 0.5], 0.8).verdict == "does not hold"


def test_below_is_above_from_the_other_side():
    ruling = below([1.1, 1.2, 1.15], 1.3)
    assert ruling.verdict == "holds" and ruling.estimate.low < 1.15 < ruling.estimate.high
    assert below([1.5, 1.6, 1.55], 1.3).verdict == "does not hold"
    assert f"{below([0.0, 0.0, 0.0], 0.05).estimate:.3f}" == "0.000", "not -0.000"


def test_a_share_of_runs_is_judged_by_wilsons_interval():
    assert share_above(5, 5, 0.5).verdict == "holds"
    assert share_above(4, 5, 0.5).verdict == "cannot tell"
    assert share_above(0, 5, 0.5).verdict == "does not hold"
    assert share_above(0, 0, 0.5).verdict == "cannot tell"
    # None of a few has no deviation, and yet three runs cannot tell what two could.
    needed = share_above(0, 3, 0.5).seeds_needed
    assert needed is not None and needed > 3


def test_parts_are_put_together():
    yes, no, open_ = above([1, 1, 1], 0), above([-1, -1, -1], 0), above([1, -1, 0.5], 0, margin=0.1)
    assert all_of(yes, yes) == "holds" and all_of(yes, open_) == "cannot tell" and all_of(open_, no) == "does not hold"
    assert any_of(no, yes) == "holds" and any_of(no, open_) == "cannot tell" and any_of(no, no) == "does not hold"
    assert finding("", (), yes, open_).seeds_needed == open_.seeds_needed and finding("", (), yes).seeds_needed is None


def test_arms_are_compared_by_pairs_of_seeds(tmp_path):
    found = evidence(tmp_path, {"one": successes(0.4, 0.6, noise=0.05), "other": successes(0.4, 0.5, noise=0.049)})
    assert [row["one"] - row["other"] for row in by_seed(found, final)] == pytest.approx(
        [0.098, 0.099, 0.1, 0.101, 0.102]
    )
    assert gain(found, "one", "other").verdict == "holds"
    assert gain(found, "other", "one").verdict == "does not hold"


def test_points_are_the_arms_that_are_named_in_their_order_with_their_published_numbers(tmp_path):
    found = evidence(tmp_path, {"one": successes(0.4, 0.6), "other": successes(0.4, 0.5)})
    published = {"other": 0.7, "one": None}
    points = arm_points(found, published)
    assert [(point.label, point.published) for point in points] == [("other", 0.7), ("one", None)]
    assert [point.ours.mean for point in points] == pytest.approx([0.5, 0.6])
    assert table_points(by_seed(found, final), published) == points
    assert [point.ours.mean for point in arm_points(found, published, mean_success)] == pytest.approx([0.45, 0.5])


def test_many_arms_are_corrected_for_their_number(tmp_path):
    rises = {f"arm {number}": successes(0.5, 0.53, noise=0.015) for number in range(8)}
    found = evidence(tmp_path, {"base": successes(0.5, 0.5, noise=0.0)} | rises)
    alone = better(found, ["arm 1"], "base", final, margin=0.05)["arm 1"]
    among = better(found, list(rises), "base", final, margin=0.05)["arm 1"]
    assert alone.verdict == "holds" and among.verdict == "cannot tell"
    assert alone.estimate == among.estimate
