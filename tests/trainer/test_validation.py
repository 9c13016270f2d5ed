"""What several validations and several tries at one level say together."""

import math
from statistics import fmean

import pytest

from ragen.trainer.validation import merged, reward_statistics
from ragen.types import Status
from tests.trainer.runs import episode


def test_tries_at_one_level_are_compared_with_each_other():
    scores = {0: [0.0, 1.0], 1: [1.0, 1.0]}
    episodes = [episode(i, [score], group_id=level) for level, row in scores.items() for i, score in enumerate(row)]
    metrics = reward_statistics(episodes)
    assert metrics["val-core/Lake/reward/mean@2"] == 0.75
    assert metrics["val-aux/Lake/reward/std@2"] == 0.25  # .5 and 0
    # The best of two draws from [0, 1] is 1 in three of four cases: (.75 + 1) / 2.
    assert metrics["val-aux/Lake/reward/best@2/mean"] == 0.875
    assert metrics["val-aux/Lake/reward/worst@2/mean"] == 0.625
    assert metrics["val-aux/Lake/reward/best@2/std"] == pytest.approx(math.sqrt(0.75 * 0.25) / 2)


def test_one_try_per_level_has_a_mean_only_and_lost_episodes_do_not_count():
    lost = episode(0, [9.0], group_id=1)
    lost.status = Status.ENV_ERROR
    assert reward_statistics([episode(0, [2.0]), lost]) == {"val-core/Lake/reward/mean@1": 2.0}


def test_metrics_of_several_validations_are_averaged_where_they_exist():
    assert merged([{"a": 1.0, "b": 4.0}, {"a": 3.0}], fmean) == {"a": 2.0, "b": 4.0}
