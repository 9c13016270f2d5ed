"""Lakes: the same for a seed for ever, and with a way to the goal."""

import pytest

from ragen.env import make_env
from ragen.env.frozen_lake.lake import generate_lake, solve
from ragen.errors import ConfigError
from tests.env.helpers import lake


@pytest.mark.parametrize(
    "options, seed, rows",
    [
        ({}, 0, "__OO _G_O ____ _PO_"),
        ({}, 1, "__P_ ____ ____ _GO_"),
        ({}, 123, "_G__ ____ ____ P___"),
        ({"size": 8, "p": 0.8}, 5, "______O_ ____G___ ____P___ ______O_ _____O__ O_______ O_O__O__ _O____O_"),
    ],
)
def test_a_seed_names_the_same_lake_for_ever(options: dict, seed: int, rows: str):
    assert make_env("frozen_lake", options).reset(seed).split() == rows.split()


def test_three_thousand_lakes_have_a_way_to_the_goal():
    num_holes = 0
    for seed in range(3000):
        level = generate_lake(4, p=0.9, seed=seed)
        assert level.start != level.goal and level.start & level.ice and level.goal & level.ice
        assert solve(level, level.start)
        num_holes += 16 - level.ice.bit_count()
    # 14 cells are neither start nor goal, a tenth of them holes; lakes without a way are drawn again, so a bit fewer.
    assert num_holes / 3000 == pytest.approx(1.4, abs=0.1)


def test_a_way_never_wraps_around_the_edge_of_the_board():
    assert solve(lake("_OP", "GO_", "_O_"), 1 << 2) is None


def test_a_lake_that_is_nearly_all_water_is_refused_when_it_is_made(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ragen.env.frozen_lake.lake.MAX_ATTEMPTS", 3)
    with pytest.raises(ConfigError, match="larger p"):
        make_env("frozen_lake", {"size": 20, "p": 0.001})
