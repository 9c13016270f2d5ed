"""The comparison of levels: its runs can be configured, and success is a mean over the sizes."""

import sys
from pathlib import Path

import pytest

from ragen.config import load_config
from ragen.types import Episode, Status

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from levels import ARMS, SHARED, TASKS, Run, report, success_of


@pytest.mark.parametrize("task", TASKS)
def test_the_arms_differ_in_the_choice_of_levels_alone(task):
    chosen = [
        load_config(TASKS[task].config_name, [*SHARED, *TASKS[task].overrides, *changes]).es_manager
        for changes in ARMS.values()
    ]
    assert [(one.train.levels, one.train.refill) for one in chosen] == [
        ("fresh", 0), ("pool", 0), ("pass_rate", 0), ("fresh", 3),
    ]  # fmt: skip
    assert len({(one.train.env_groups, one.train.group_size, one.train.env_configs, one.val) for one in chosen}) == 1


def test_each_size_counts_alike_and_a_run_that_is_not_done_is_left_out(tmp_path):
    episodes = [
        Episode(tag=tag, env_type="lake", group_id=0, member=0, seed=0, status=status)
        for tag, status in [("A", Status.SOLVED), ("A", Status.FAILED), ("A", Status.FAILED), ("B", Status.SOLVED)]
    ]
    assert success_of(episodes, "A") == pytest.approx(1 / 3)
    assert success_of(episodes, "mean") == pytest.approx(2 / 3)
    lines = report("lakes", [Run(arm="fresh", seed=1, path=tmp_path)]).splitlines()
    assert len(lines) == 4 and lines[0] == "lakes:", "a header without rows"
