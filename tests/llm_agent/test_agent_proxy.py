"""The loop of episodes: turns, ends, sessions and faults, with a scripted engine and a counting environment."""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ragen.engine.base import Completion, Request, StopReason
from ragen.engine.scripted import ScriptedEngine
from ragen.env import check_env
from ragen.llm_agent.agent_proxy import ENTROPY_DECIMALS
from ragen.llm_agent.metrics import rollout_metrics
from ragen.llm_agent.prompts import INVALID_NOTE
from ragen.seeding import Rng
from ragen.types import Episode, Status, group_episodes
from tests.llm_agent.counting import (
    CountingConfig,
    CountingEnv,
    RecordingEngine,
    answer,
    make_seats,
    make_tag,
    play,
    rollout,
    script,
    statuses,
    users,
)


def test_the_counting_environment_is_an_environment():
    check_env(partial(CountingEnv, CountingConfig()), seeds=range(3))


def test_counting_to_the_goal_solves_the_level():
    episode = play(answer("Up || Up"), answer("Up"))
    assert episode.status is Status.SOLVED
    assert episode.is_success
    assert [turn.executed for turn in episode.turns] == [["Up", "Up"], ["Up"]]
    assert [turn.reward for turn in episode.turns] == [2.0, 1.0]
    assert episode.reward == episode.score == 3.0
    assert episode.final_observation == "level 7: count 3"


def test_an_episode_the_environment_ends_without_success_failed():
    episode = play(answer("Down"))
    assert episode.status is Status.FAILED
    assert not episode.is_success
    assert episode.reward == -0.5


def test_success_without_an_end_of_the_episode_does_not_count():
    class Boasting(CountingEnv):
        def step(self, action):
            result = super().step(action)
            return type(result)(observation="", reward=0.0, is_done=False, info={"success": 1.0})

    seats = make_seats()
    seats.seats[0].env = Boasting(seats.seats[0].env.config)
    [episode] = rollout(ScriptedEngine(script(answer("Up"))), seats=seats)
    assert episode.status is Status.OUT_OF_TURNS
    assert not episode.is_success


def test_max_turn_replies_are_asked_for_and_no_more():
    episode = play(answer("Break"), max_turn=4)
    assert episode.status is Status.OUT_OF_TURNS
    assert len(episode.turns) == 4


def test_a_note_is_shown_only_when_nothing_was_usable():
    episode = play(answer("Jump || Up"), answer("Jump"), answer("Break"))
    assert [INVALID_NOTE in user for user in users(episode)] == [False, False, True, False, False]


def test_a_text_engine_that_opens_the_think_block_itself_is_not_given_a_second_one():
    episode = play("<think>" + answer("Up"))
    assert episode.turns[0].text == "<think>go</think><answer>Up</answer>"
    assert episode.turns[0].thought == "go"


def test_a_text_engine_sees_the_conversation_as_alternating_messages():
    engine = RecordingEngine(ScriptedEngine(script(answer("Up"))))
    [episode] = rollout(engine)
    assert [message["role"] for message in engine.requests[2].messages] == [
        "system", "user", "assistant", "user", "assistant", "user",
    ]  # fmt: skip
    assert list(engine.requests[2].messages) == episode.messages()[:6]


def by_chance(request: Request) -> str:
    """A reply that depends on the noise of the request alone."""
    rng = Rng(request.seed)
    return answer(" || ".join(rng.choice(["Up", "Down", "Break", "Jump"]) for _ in range(2)))


def chance_rollout(*, per_step: int | None = None, noise_seed: int = 0, max_workers: int = 1) -> list[Episode]:
    seats = make_seats(make_tag(max_workers=max_workers), num_groups=3, group_size=4)
    episodes = rollout(ScriptedEngine(by_chance, per_step=per_step), seats=seats, noise_seed=noise_seed)
    seats.close()
    return episodes


@pytest.mark.parametrize("per_step", [1, 5])
def test_results_do_not_depend_on_the_order_in_which_replies_finish(per_step):
    assert chance_rollout(per_step=per_step) == chance_rollout()


def test_results_do_not_depend_on_threads():
    assert chance_rollout(max_workers=4) == chance_rollout()
    assert chance_rollout(max_workers=4, per_step=1) == chance_rollout()


def test_another_noise_seed_gives_other_replies_on_the_same_levels():
    first, other = chance_rollout(), chance_rollout(noise_seed=1)
    assert [episode.seed for episode in other] == [episode.seed for episode in first]
    assert other != first


def test_every_reply_of_a_rollout_has_its_own_noise():
    engine = RecordingEngine(ScriptedEngine(script(answer("Break"))))
    rollout(engine, seats=make_seats(num_groups=3, group_size=4))
    assert len({request.seed for request in engine.requests}) == len(engine.requests) == 3 * 4 * 5


def test_every_session_is_released_once_and_reported_once():
    engine, ended = RecordingEngine(ScriptedEngine(by_chance)), []
    episodes = rollout(engine, seats=make_seats(num_groups=2, group_size=3), on_episode=ended.append)
    assert sorted(engine.released) == list(range(6))
    assert sorted(map(id, ended)) == sorted(map(id, episodes))


def test_a_level_that_cannot_be_made_ends_its_own_group_only():
    seats = make_seats(make_tag(failing_seed=8), num_groups=3, group_size=2)
    ended: list[Episode] = []
    episodes = rollout(ScriptedEngine(script(answer("Up || Up"), answer("Up"))), seats=seats, on_episode=ended.append)
    assert statuses(episodes) == ["solved", "solved", "env_error", "env_error", "solved", "solved"]
    assert re.fullmatch(r"RuntimeError: no such level \(counting.py:\d+ in reset\)", episodes[2].error)
    assert episodes[2].turns == []
    assert [group.is_complete for group in group_episodes(episodes)] == [True, False, True]
    metrics = rollout_metrics(episodes)
    assert metrics["faults/env_errors"] == 2
    assert metrics["faults/incomplete_groups"] == 1
    assert metrics["tag0/success"] == 1.0
    assert len(ended) == 6
    assert statuses(rollout(ScriptedEngine(script(answer("Down"))), seats=seats, base_seed=20)) == ["failed"] * 6


def break_first(request: Request) -> str:
    """Session 0 breaks the environment in the second action of its first turn."""
    return answer("Up || Break") if request.session == 0 else answer("Up || Up")


@pytest.mark.parametrize("max_workers", [1, 2])
@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("raise", r"ZeroDivisionError: broken \(counting.py:\d+ in stumble\)"),
        ("nan_reward", r"step returned a reward nan: expected a finite number\."),
        ("text_reward", r"step returned a reward 'much': expected a number\."),
        ("text_info", r"step returned an info \{.*\}: expected a number for 'mood', got 'bad'\."),
        ("no_observation", r"step returned an observation None: expected a text\."),
    ],
)
def test_an_environment_that_fails_in_a_step_ends_its_own_episode_only(step, error, max_workers):
    seats = make_seats(make_tag(step=step, max_workers=max_workers, goal=2), group_size=2, num_groups=2)
    episodes = rollout(ScriptedEngine(break_first), seats=seats)
    seats.close()
    assert statuses(episodes) == ["env_error", "solved", "solved", "solved"]
    assert re.fullmatch(error, episodes[0].error)
    assert episodes[0].turns[0].executed == ["Up"]
    assert episodes[0].reward == 1.0
    assert [group.is_complete for group in group_episodes(episodes)] == [False, True]
    assert rollout_metrics(episodes)["faults/env_errors"] == 1


def test_an_environment_that_cannot_describe_itself_ends_its_own_episode():
    seats = make_seats(make_tag(notes="raise"), make_tag(goal=1))
    episodes = rollout(ScriptedEngine(script(answer("Up"))), seats=seats)
    assert statuses(episodes) == ["env_error", "solved"]
    assert episodes[0].error.startswith("LookupError: no notes (counting.py:")


class GivingUpEngine(ScriptedEngine):
    """Gives up on the second reply of session 0."""

    def complete(self, request: Request) -> Completion:
        if request.session == 0 and len(request.messages) > 2:
            return Completion(session=0, stop_reason=StopReason.ERROR, error="no answer")
        return super().complete(request)


def test_an_engine_that_gives_up_on_a_reply_ends_that_episode_only():
    engine = RecordingEngine(GivingUpEngine(script(answer("Up || Up"), answer("Up"))))
    episodes = rollout(engine, seats=make_seats(group_size=2))
    assert statuses(episodes) == ["engine_error", "solved"]
    assert episodes[0].error == "no answer"
    assert len(episodes[0].turns) == 1
    assert not group_episodes(episodes)[0].is_complete
    assert rollout_metrics(episodes)["faults/engine_errors"] == 1
    assert sorted(engine.released) == [0, 1]


@given(st.lists(st.floats(min_value=0, max_value=20, width=32)))
@example([j / 32 for j in range(100)])  # where a fifth decimal is exactly 5, too
def test_entropies_are_rounded_as_python_rounds_them(entropies):
    assert np.round(entropies, ENTROPY_DECIMALS).tolist() == [round(entropy, ENTROPY_DECIMALS) for entropy in entropies]
