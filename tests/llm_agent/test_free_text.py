"""Environments of free text are played like those with named actions: prompts, penalties, policies, contexts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from ragen.config import load_config
from ragen.engine.scripted import ScriptedEngine
from ragen.env import REGISTRY, register
from ragen.errors import ConfigError
from ragen.llm_agent.es_manager import EsManager
from ragen.llm_agent.metrics import rollout_metrics
from ragen.llm_agent.policies import has_random, has_solver, play_policy
from ragen.tracking.episodes import episode_from_json, episode_to_json
from ragen.types import Status
from tests.llm_agent.counting import answer, make_agent, make_seats, make_tag, play, rollout, script, statuses, users


@pytest.fixture(autouse=True, scope="module")
def text_environments() -> Iterator[None]:
    register("echo", "tests.env.text_envs:Echo")
    register("polite", "tests.env.text_envs:Polite")
    yield
    del REGISTRY["echo"], REGISTRY["polite"]


ECHO, POLITE = make_tag("echo", max_steps=5), make_tag("polite")


def heard(*replies: str, **agent) -> list[str]:
    """What the environment was given."""
    seats = make_seats(ECHO)
    rollout(ScriptedEngine(script(*replies)), seats=seats, agent=make_agent(max_turn=len(replies), **agent))
    return seats.seats[0].env.heard


@pytest.mark.parametrize("parsing", ["strict", "lenient"])
def test_the_answer_block_is_handed_over_as_it_is(parsing):
    texts = ["Up || Left, 1. **Down**;", "  two\n lines ", "`code`", "x" * 5000]
    assert heard(*map(answer, texts), answer_parsing=parsing) == texts


def test_tags_and_chat_markers_are_taken_off_and_nothing_else():
    assert heard(answer("a<think>b")) == ["ab"]


def test_one_answer_is_one_action_and_the_budget_counts_answers():
    episode = play(answer("a || b || c"), tag=replace(ECHO, max_actions_per_traj=2), max_actions_per_turn=1)
    assert [turn.executed for turn in episode.turns] == [["a || b || c"], ["a || b || c"]]
    assert episode.status is Status.OUT_OF_ACTIONS and episode.num_actions == 2


def test_the_prompt_speaks_of_answers():
    episode = play(answer("hm"), tag=ECHO)
    assert episode.system == "You are a helpful assistant.\nCount up.\nYou have 6 answers."
    assert episode.turns[0].user == (
        "Turn 1\nState:\nlevel 7, texts 0\nAnswers left: 6. Reply with "
        "<think>your thoughts</think><answer>your answer</answer> in at most 40 tokens."
    )
    single = play(answer("hm"), tag=replace(ECHO, max_actions_per_traj=1), enable_think=False)
    assert single.system.endswith("You have 1 answer.") and "<think>" not in single.turns[0].user


def test_an_environment_has_its_own_system_message_example_and_length():
    tag = replace(POLITE, max_tokens=None)
    episode = play(answer("hm"), tag=tag, example_answer=True)
    assert episode.system == "You talk to door 7.\nCount up."
    assert episode.turns[0].user.endswith(
        "<answer>your answer</answer>, for example <think>...</think><answer>open, thanks</answer>, "
        "in at most 17 tokens."
    )
    [cut] = rollout(
        ScriptedEngine(script(answer("x"))), seats=make_seats(tag), agent=make_agent(enforce_max_tokens=True)
    )
    assert cut.turns


def test_without_any_length_of_a_reply_nothing_starts():
    with pytest.raises(ConfigError, match=r"custom_envs\.tag0\.max_tokens is null, and 'echo' has no length"):
        make_seats(replace(ECHO, max_tokens=None))


def test_blank_answers_missing_blocks_and_texts_of_no_use_cost_the_penalty():
    episode = play(answer(" \n"), "no block", answer("# no"), answer("fine"), tag=ECHO, max_turn=4)
    assert [turn.penalty for turn in episode.turns] == [-0.1, -0.1, -0.1, 0]
    assert [turn.is_invalid for turn in episode.turns] == [True, True, True, False]
    assert [turn.is_lenient_valid for turn in episode.turns] == [False, False, False, True]
    # What the environment was given was used up; it says itself what is wrong with it.
    assert ["had no answer in the required form" in user for user in users(episode)] == [False, True, True, False]
    assert [turn.executed for turn in episode.turns] == [[], [], ["# no"], ["fine"]]


def test_limits_of_the_environment_are_told_from_the_ends_of_the_task():
    won = play(answer("please"), tag=make_tag("echo"))
    cut = play(answer("no"), tag=make_tag("echo", max_steps=2))
    assert statuses([won, cut]) == ["solved", "truncated"]
    assert won.reward == 1 and len(cut.turns) == 2
    assert rollout_metrics([won, cut])["truncation/env_limit"] == 1
    assert episode_from_json(episode_to_json(cut)) == cut


def test_a_summary_of_earlier_turns_stays_in_one_line_each():
    episode = play(answer("a\nb"), answer("long " * 200), answer("c"), tag=ECHO, mode="single_turn", max_turn=3)
    first, second = episode.turns[2].user.splitlines()[1:3]
    assert first == "Turn 1: a b, reward 0"
    assert second.startswith("Turn 2: long long") and "characters left out" in second and len(second) < 250


def test_several_threads_play_texts_as_well():
    seats = make_seats(make_tag("polite", max_workers=2), num_groups=2, group_size=2)
    episodes = rollout(ScriptedEngine(script(answer("no"), answer("please"))), seats=seats)
    assert statuses(episodes) == ["solved"] * 4


# --- players without a model ----------------------------------------------------------------------------------------


def played(noise: float, *overrides: str):
    config = load_config("countdown", ["es_manager.val.env_groups=20", *overrides])
    environments = EsManager(config.es_manager.val, config.custom_envs)
    return play_policy(config, environments, noise=noise, base_seed=1)


@pytest.mark.parametrize("think", [True, False])
def test_solver_and_chance_write_texts(think):
    solved, random = (played(noise, f"agent_proxy.enable_think={think}") for noise in (0.0, 1.0))
    assert statuses(solved) == ["solved"] * 20
    assert {turn.is_invalid for episode in random for turn in episode.turns} == {False}
    assert 0 < sum(episode.is_success for episode in random) < 20


def test_an_environment_without_a_random_answer_says_so():
    silent, polite = make_seats(ECHO), make_seats(POLITE)
    assert not has_random(silent, "tag0") and not has_solver(silent, "tag0")
    assert has_random(polite, "tag0") and has_solver(polite, "tag0")
    assert has_random(make_seats(), "tag0")
