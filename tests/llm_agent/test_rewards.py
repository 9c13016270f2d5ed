"""A reward function replaces what an episode earned, once, and its mistakes are told."""

import pytest

from ragen.errors import RagenError
from ragen.llm_agent.rewards import CHANGE, replace_reward, reward_function
from ragen.types import Status
from tests.trainer.runs import episode


def test_the_difference_is_added_to_the_last_turn():
    played = episode(0, [0.0, 1.0])
    for _ in range(2):
        replace_reward(played, lambda episode: episode.reward / 2, name="own:half")
    assert [turn.reward for turn in played.turns] == [0.0, 0.5] and played.reward == 0.5
    assert played.turns[-1].info[CHANGE] == -0.5


def test_an_episode_that_was_lost_keeps_what_it_has():
    lost, empty = episode(0, [1.0]), episode(0, [])
    lost.status = Status.ENV_ERROR
    for played in (lost, empty):
        replace_reward(played, lambda episode: 9.0, name="own:nine")
    assert (lost.reward, empty.reward) == (1.0, 0)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda episode: float("nan"), r"own:f returned nan on Lake, level 0\. Return a finite number"),
        (lambda episode: 1e300, r"own:f returned 1e\+300"),
        (lambda episode: 1 / 0, r"own:f failed on Lake, level 0: ZeroDivisionError: .*set the key to null"),
        (lambda episode: "much", r"own:f returned 'much' on Lake, level 0\. Return a finite"),
    ],
)
def test_a_function_that_gives_no_number_ends_the_run(function, message):
    with pytest.raises(RagenError, match=rf"es_manager\.reward_function={message}"):
        replace_reward(episode(0, [1.0]), function, name="own:f")


def test_without_a_name_there_is_none():
    assert reward_function(None) is None
    assert reward_function("tests.api.own:half_reward")(episode(0, [1.0])) == 0.5  # type: ignore[misc]
