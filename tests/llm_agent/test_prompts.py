"""The words around an observation are true for what is played."""

from __future__ import annotations

import pytest

from ragen.engine.scripted import ScriptedEngine
from ragen.types import Status
from tests.llm_agent.counting import (
    CountingEnv,
    answer,
    make_seats,
    make_tag,
    play,
    rollout,
    script,
    users,
)


def test_the_first_prompt_holds_the_task_the_state_and_the_form():
    episode = play(answer("Up"))
    assert episode.system == (
        "You are a helpful assistant.\nCount up.\nCount.\n"
        "Actions: Up, Down, Break. You have 6 actions, at most 2 per answer, separated by ||."
    )
    assert episode.turns[0].user == (
        "Turn 1\nState:\nlevel 7: count 0\nActions left: 6. Reply with "
        "<think>your thoughts</think><answer>your actions</answer> in at most 40 tokens."
    )


@pytest.mark.parametrize(
    ("max_actions", "per_turn", "sentence"),
    [(1, 2, "You have 1 action."), (4, 1, "You have 4 actions, one per answer.")],
)
def test_the_budget_is_told_as_it_is(max_actions, per_turn, sentence):
    episode = play(answer("Up"), tag=make_tag(max_actions=max_actions), max_actions_per_turn=per_turn)
    assert episode.system.endswith(sentence)


def test_each_prompt_tells_the_reward_of_the_last_turn_and_the_actions_left():
    episode = play(answer("Up || Down"), answer("Up"), answer("Break"), max_turn=4)
    assert [user.splitlines()[0] for user in users(episode)] == ["Turn 1", "Reward: 0.5", "Reward: 1", "Reward: 0"]
    assert ["Actions left: 4" in user for user in users(episode)] == [False, True, False, False]


def test_a_reward_that_cancels_out_is_shown_as_zero():
    class Rounding(CountingEnv):
        def step(self, action):
            result = super().step(action)
            return type(result)(observation="x", reward=-1e-9, is_done=False, info=result.info)

    seats = make_seats()
    seats.seats[0].env = Rounding(seats.seats[0].env.config)
    [episode] = rollout(ScriptedEngine(script(answer("Up"))), seats=seats)
    assert episode.turns[1].user.startswith("Reward: 0\n")


def test_without_thoughts_only_an_answer_is_asked_for():
    episode = play("Up || Up</answer>", "Up</answer>", enable_think=False)
    assert episode.status is Status.SOLVED
    assert "Reply with <answer>your actions</answer>" in episode.turns[0].user
    assert episode.turns[0].text == "<answer>Up || Up</answer>"
