"""Seats: which levels they play, and what the actions of a turn do to them."""

from __future__ import annotations

import pytest

from ragen.engine.scripted import ScriptedEngine
from ragen.llm_agent.es_manager import GroupLevel, levels_from
from ragen.llm_agent.prompts import INVALID_NOTE
from ragen.types import Status, group_episodes
from tests.llm_agent.counting import (
    answer,
    make_seats,
    make_tag,
    play,
    rollout,
    script,
)


def test_a_turn_executes_at_most_max_actions_per_turn():
    episode = play(answer("Up || Break || Up || Up"), answer("Down || Down"), max_actions_per_turn=2)
    assert [turn.executed for turn in episode.turns] == [["Up", "Break"], ["Down", "Down"]]
    assert [turn.num_dropped_actions for turn in episode.turns] == [2, 0]
    assert episode.turns[0].penalty == 0.0


def test_the_action_budget_ends_an_episode_in_the_middle_of_a_turn():
    episode = play(answer("Break || Break"), tag=make_tag(max_actions=3))
    assert episode.status is Status.OUT_OF_ACTIONS
    assert [turn.executed for turn in episode.turns] == [["Break", "Break"], ["Break"]]
    assert episode.turns[1].num_dropped_actions == 1
    assert episode.num_actions == 3


def test_the_last_action_of_the_budget_may_solve_the_level():
    assert play(answer("Up || Up"), tag=make_tag(max_actions=2, goal=2)).status is Status.SOLVED


def test_actions_behind_the_end_of_the_episode_are_not_executed():
    episode = play(answer("Down || Up"))
    assert episode.turns[0].executed == ["Down"]
    assert episode.turns[0].num_dropped_actions == 1
    assert episode.turns[0].reward == -0.5


def test_action_names_are_read_without_regard_to_case():
    assert play(answer("up || UP"), answer("uP")).status is Status.SOLVED


def test_unknown_actions_are_dropped_and_penalised_once_per_turn():
    episode = play(answer("Jump || Up || Fly"), answer("Up"), answer("Up"), max_actions_per_turn=3)
    assert [turn.executed for turn in episode.turns] == [["Up"], ["Up"], ["Up"]]
    assert [turn.penalty for turn in episode.turns] == [-0.1, 0.0, 0.0]
    assert episode.turns[0].actions == ["Jump", "Up", "Fly"]
    assert episode.score == pytest.approx(2.9)
    assert episode.turns[0].num_dropped_actions == 0


@pytest.mark.parametrize("reply", ["I would go up.", answer("Jump"), answer(""), answer("|| ||"), "", "</answer>"])
def test_without_a_known_action_the_environment_is_not_stepped(reply):
    episode = play(reply, answer("Up"))
    first, second = episode.turns[:2]
    assert first.executed == []
    assert (first.reward, first.penalty) == (0.0, -0.1)
    assert first.info == {"manager_invalid_action": 1.0}
    assert second.user.startswith(f"Reward: 0\n{INVALID_NOTE}\nTurn 2\nState:\nlevel 7: count 0\nActions left: 6.")
    assert second.executed == ["Up"]


def test_unusable_answers_cost_turns_but_no_actions():
    episode = play("well", max_turn=3)
    assert episode.status is Status.OUT_OF_TURNS
    assert episode.num_actions == 0
    assert episode.score == pytest.approx(-0.3)


def test_groups_of_consecutive_tags_play_consecutive_levels():
    seats = make_seats(make_tag(), make_tag(), num_groups=2, group_size=2)
    episodes = rollout(ScriptedEngine(script(answer("Up"))), seats=seats, base_seed=100)
    assert [(e.tag, e.group_id, e.member, e.seed) for e in episodes] == [
        ("tag0", 0, 0, 100), ("tag0", 0, 1, 100), ("tag0", 1, 0, 101), ("tag0", 1, 1, 101),
        ("tag1", 2, 0, 102), ("tag1", 2, 1, 102), ("tag1", 3, 0, 103), ("tag1", 3, 1, 103),
    ]  # fmt: skip
    assert [len(group.episodes) for group in group_episodes(episodes)] == [2, 2, 2, 2]


def test_groups_without_a_level_are_not_played_and_each_visit_counts_its_members_on():
    seats = make_seats(make_tag(), make_tag(), num_groups=2, group_size=2)
    playing = seats.reset([None, GroupLevel(seed=7, visit=3), None, GroupLevel(seed=9)])
    assert [(seat.tag, seat.group_id, seat.member, seat.seed) for seat in playing] == [
        ("tag0", 1, 6, 7), ("tag0", 1, 7, 7), ("tag1", 3, 0, 9), ("tag1", 3, 1, 9),
    ]  # fmt: skip
    assert [seat.member for seat in seats.reset(levels_from(7, 4))] == [0, 1] * 4


def test_seats_can_be_played_again_on_other_levels():
    seats = make_seats(num_groups=2)
    first = rollout(ScriptedEngine(script(answer("Up"))), seats=seats, base_seed=7)
    other = rollout(ScriptedEngine(script(answer("Up"))), seats=seats, base_seed=9)
    again = rollout(ScriptedEngine(script(answer("Up"))), seats=seats, base_seed=7)
    assert again == first
    assert [episode.seed for episode in other] == [9, 10]
    assert other[0].turns[0].user != first[0].turns[0].user
