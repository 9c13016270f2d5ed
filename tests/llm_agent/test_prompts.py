"""The words around an observation are true for what is played."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import pytest

from ragen.config import load_config
from ragen.engine.scripted import ScriptedEngine
from ragen.llm_agent.es_manager import EsManager, levels_from
from ragen.llm_agent.parsing import parse_reply
from ragen.llm_agent.policies import play_policy
from ragen.llm_agent.prompts import example_actions, reply_form, user_message
from ragen.types import Status
from tests.llm_agent.counting import (
    CountingEnv,
    answer,
    make_agent,
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


# The example answer


def examples(
    num_levels: int = 200, *, names: tuple[str, ...] = ("Up", "Down", "Break"), max_actions: int = 6, **agent
) -> list[list[str]]:
    """The actions of the examples of many levels of an environment with these actions."""
    [seat] = make_seats(make_tag(max_actions=max_actions)).reset(levels_from(0, 1))
    seat.actions = dict(enumerate(names))
    found = []
    for seed in range(num_levels):
        seat.seed = seed
        found.append(example_actions(seat, make_agent(**agent)))
    return found


def test_the_form_is_shown_with_a_finished_answer_when_it_is_asked_for():
    shown, plain = (play(answer("Up"), example_answer=is_shown) for is_shown in (True, False))
    actions = " || ".join(examples(8)[7])  # of level 7, which is played
    example = f", for example <think>...</think><answer>{actions}</answer>, in at most 40 tokens."
    assert shown.turns[0].user == plain.turns[0].user.replace(" in at most 40 tokens.", example)
    assert shown.system == plain.system


def test_without_thoughts_the_example_has_none():
    episode = play("Up</answer>", enable_think=False, example_answer=True)
    actions = " || ".join(examples(8)[7])
    form = f"Reply with <answer>your actions</answer>, for example <answer>{actions}</answer>, in at most 40 tokens."
    assert episode.turns[0].user.endswith(form)


@pytest.mark.parametrize(
    ("per_turn", "budget", "counts"), [(1, 9, {1}), (2, 9, {2}), (5, 9, {2, 3}), (5, 1, {1}), (5, 2, {2})]
)
def test_an_example_is_as_long_as_an_answer_may_be_and_shows_the_separator_where_it_can(per_turn, budget, counts):
    found = examples(max_actions=budget, max_actions_per_turn=per_turn)
    assert {len(actions) for actions in found} == counts


def test_examples_differ_between_levels_and_use_every_action():
    found = examples()
    assert len(set(map(tuple, found))) == 9
    assert {name for actions in found for name in actions} == {"Up", "Down", "Break"}


def test_names_that_no_answer_can_hold_are_not_shown():
    names = ("left || right", "say </answer>", "<think>", "go, then stop")
    assert {name for actions in examples(names=names) for name in actions} == {"go, then stop"}
    assert examples(1, names=names[:2]) == [[]]
    [seat] = make_seats().reset(levels_from(0, 1))
    seat.actions = {1: names[0]}
    with_example, without = (user_message(seat, [], make_agent(example_answer=shown)) for shown in (True, False))
    assert with_example == without


def shown_example(user: str) -> str:
    return user.partition(", for example ")[2].removesuffix(", in at most 40 tokens.")


def test_a_group_shares_its_example_over_all_turns_and_another_level_has_another():
    seats = make_seats(num_groups=4, group_size=3)
    engine = ScriptedEngine(script(answer("Up"), answer("Down")))
    episodes = rollout(engine, seats=seats, agent=make_agent(example_answer=True, action_sep=";"))
    assert all(len(episode.turns) > 1 for episode in episodes)
    found = [
        {shown_example(user) for episode in episodes if episode.group_id == group for user in users(episode)}
        for group in range(4)
    ]
    assert [len(shown) for shown in found] == [1, 1, 1, 1]
    assert len(set.union(*found)) > 1
    assert all(" ; " in shown for each in found for shown in each)


def test_the_example_says_nothing_about_the_solution():
    config = load_config(
        "_1_bandit",
        ["agent_proxy.example_answer=True", "es_manager.train.env_groups=400", "es_manager.train.group_size=1"],
    )
    environments = EsManager(config.es_manager.train, config.custom_envs)
    turns = [episode.turns[0] for episode in play_policy(config, environments, noise=0.0, base_seed=0)]
    shown = [f"<answer>{turn.executed[0]}</answer>, in at most" in turn.user for turn in turns]
    assert 0.4 < fmean(shown) < 0.6  # of two arms


@pytest.mark.parametrize("tag", ["Bandit", "BanditTest", "SimpleSokoban", "CoordFrozenLake"])
def test_every_environment_gets_a_valid_example(tag):
    overrides = [f"es_manager.train.env_configs.tags=[{tag}]"]
    config = load_config("base", [*overrides, "agent_proxy.max_actions_per_turn=3"])
    agent = replace(config.agent_proxy, example_answer=True)
    environments = EsManager(config.es_manager.train, config.custom_envs)
    for seat in environments.reset(levels_from(3, environments.num_groups)):
        example = reply_form(seat, agent).partition(", for example ")[2]
        read = parse_reply(example, enable_think=True, action_sep="||", max_actions=3)
        assert read.is_parsed and read.num_cut == 0
        assert set(read.actions) <= set(seat.actions.values())
