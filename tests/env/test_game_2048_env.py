"""2048: rewards, ends, chance and the reference line."""

import pytest

from ragen.env import make_env
from ragen.env.game_2048.board import DOWN, LEFT, RIGHT, UP
from ragen.env.game_2048.env import Game2048Config, Game2048Env
from ragen.errors import ConfigError

SMALL = Game2048Config(size=3, target=32, start_moves=6, max_steps=40)


def at(*rows: tuple[int, ...], **options) -> Game2048Env:
    """A game that stands on the drawn board."""
    env = Game2048Env(Game2048Config(size=len(rows), **options))
    env.load(rows)
    return env


def test_merges_earn_their_share_of_the_target_and_the_target_one_more():
    # 8 made of twos: two fours (4 points each) and 8 for itself, 16 points in all.
    env = at((2, 2, 0), (2, 2, 0), (0, 0, 0), target=8)
    first = env.step(LEFT)
    assert (first.reward, first.is_done) == ((4 + 4) / 16, False)
    second = env.step(UP)
    assert second.reward == pytest.approx(8 / 16 + 1) and second.terminated and second.info["success"] == 1


def test_after_a_move_one_tile_comes_and_after_none_nothing_does():
    env = at((2, 0, 0), (4, 0, 0), (8, 0, 0), target=64)
    stuck = env.step(LEFT)
    assert stuck.observation == "2 . .\n4 . .\n8 . ." and stuck.reward == 0
    assert (stuck.info["action_is_valid"], stuck.info["action_is_effective"]) == (1, 0)
    moved = env.step(RIGHT)
    assert moved.info["action_is_effective"] == 1
    assert sum(tile > 0 for row in env.board for tile in row) == 4


def test_an_id_that_is_no_action_is_invalid():
    assert Game2048Env().step(9).info["action_is_valid"] == 0


def test_a_full_board_without_equal_neighbours_is_lost():
    # Down moves the left column only; the tile that comes above it is 2 or 4, and neither 16 nor 32 is beside one.
    env = at((2, 16), (0, 32), target=64)
    result = env.step(DOWN)
    is_stuck = env.board[0][0] != env.board[1][0]
    assert (result.terminated, result.info["success"]) == (is_stuck, 0)
    lost = at((2, 4), (0, 8), target=64)
    lost.load(((2, 4), (4, 2)))
    assert lost.is_lost and lost.is_done and lost.solve() is None


def test_max_steps_truncates():
    env = at((2, 0, 0), (4, 0, 0), (8, 0, 0), target=64, max_steps=2)
    results = [env.step(LEFT), env.step(LEFT)]
    assert [(result.terminated, result.truncated) for result in results] == [(False, False), (False, True)]


def test_columns_are_in_line():
    assert at((2, 128), (0, 16), target=256).render() == "  2 128\n  .  16"


def test_members_share_the_board_and_not_the_tiles_that_come():
    def play(member: int) -> list[str]:
        env = Game2048Env(SMALL)
        return [env.reset(5, member), *(env.step(action).observation for action in (UP, LEFT, DOWN, RIGHT))]

    first, again, other = play(0), play(0), play(1)
    assert first == again and first[0] == other[0] and first != other


def test_the_tiles_that_come_depend_on_how_many_came_before_and_on_nothing_else():
    """Actions without effect, and questions to the reference player, do not change the game."""
    plain, other = Game2048Env(SMALL), Game2048Env(SMALL)
    plain.reset(3), other.reset(3)
    for action in plain.solve():
        other.solve()
        seen = plain.step(action).observation
        assert other.step(action).observation == seen


def test_seeds_name_the_same_boards_on_every_machine():
    env = Game2048Env(SMALL)
    assert [env.reset(seed) for seed in range(3)] == [
        ". . .\n. 8 .\n2 2 4",
        "2 . .\n4 2 .\n2 8 .",
        "2 2 .\n2 . .\n2 8 .",
    ]
    env.reset(0)
    assert [env.step(action).observation for action in (UP, LEFT)] == ["2 8 4\n2 2 .\n. . .", "2 8 4\n4 . .\n. . 2"]


def test_more_moves_before_the_start_make_more_levels():
    counts = []
    for start_moves in (0, 6):
        env = Game2048Env(Game2048Config(size=3, target=32, start_moves=start_moves))
        counts.append(len({env.reset(seed) for seed in range(300)}))
    assert counts[0] < 120 < 250 < counts[1]


def test_the_reference_player_reaches_the_target_nearly_always():
    env, won = Game2048Env(SMALL), 0
    for seed in range(40):
        env.reset(seed)
        for action in env.solve():
            result = env.step(action)
        won += result.info["success"]
        assert env.solve() is None and env.hint() == ""
    assert won >= 36


def test_the_thought_says_what_the_next_move_makes():
    env = at((2, 2, 0), (0, 0, 0), (0, 0, 0), target=8)
    assert env.hint() in ("Left makes 4.", "Right makes 4.")


@pytest.mark.parametrize("target", [0, 4, 100, 262144])
def test_targets_are_powers_of_two(target):
    with pytest.raises(ConfigError, match=f"game_2048.target is {target}. Use a power of two"):
        make_env("game_2048", {"target": target})


def test_a_start_that_no_game_reaches_is_refused():
    with pytest.raises(ConfigError, match=r"start_moves is 500.*Use fewer moves"):
        Game2048Env(Game2048Config(size=2, target=8, start_moves=500))
