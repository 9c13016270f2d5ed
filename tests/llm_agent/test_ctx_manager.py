"""Contexts in the three modes: what is shown, dropped and trained on, and when an episode no longer fits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ragen.engine.scripted import ScriptedEngine
from ragen.errors import ConfigError
from ragen.llm_agent.agent_proxy import refuse_when_nothing_fits
from ragen.llm_agent.chat import Chat
from ragen.llm_agent.ctx_manager import to_samples
from ragen.llm_agent.metrics import rollout_metrics
from ragen.llm_agent.prompts import INVALID_NOTE
from ragen.types import Episode, Status, group_episodes
from tests.llm_agent.counting import (
    CountingConfig,
    CountingEnv,
    RecordingEngine,
    answer,
    make_agent,
    make_seats,
    make_tag,
    rollout,
    script,
    statuses,
)
from tests.llm_agent.templates import family_tokenizer

RESPONSE_LENGTH = 30


def play_tokens(mode: str, *, max_model_len: int, window: int = -1) -> tuple[RecordingEngine, Episode]:
    tokenizer = family_tokenizer("qwen2.5")
    chat = Chat(tokenizer, forced_prefix="<think>", is_growing=mode != "single_turn")
    engine = RecordingEngine(ScriptedEngine(script(answer("Break")), tokenizer))
    agent = make_agent(mode, window=window, max_turn=4, max_actions_per_turn=1)
    [episode] = rollout(engine, chat, agent=agent, response_length=RESPONSE_LENGTH, max_model_len=max_model_len)
    return engine, episode


def prompt_lengths(engine: RecordingEngine) -> list[int]:
    return [len(request.prompt_ids) for request in engine.requests]


@pytest.mark.parametrize("num_turns", [1, 2, 3])
def test_a_conversation_ends_when_the_next_prompt_and_a_whole_reply_no_longer_fit(num_turns):
    lengths = prompt_lengths(play_tokens("full", max_model_len=9999)[0])
    assert len(lengths) == 4
    limit = lengths[num_turns - 1] + RESPONSE_LENGTH
    engine, episode = play_tokens("full", max_model_len=limit)
    assert episode.status is Status.CONTEXT_FULL
    assert prompt_lengths(engine) == lengths[:num_turns]
    assert rollout_metrics([episode])["truncation/context"] == 1
    assert rollout_metrics([episode])["truncation/turn_cap"] == 0


def test_a_conversation_that_just_fits_is_played_to_its_end():
    lengths = prompt_lengths(play_tokens("full", max_model_len=9999)[0])
    _, episode = play_tokens("full", max_model_len=lengths[-1] + RESPONSE_LENGTH)
    assert episode.status is Status.OUT_OF_TURNS
    _, episode = play_tokens("full", max_model_len=lengths[-1] + RESPONSE_LENGTH - 1)
    assert episode.status is Status.CONTEXT_FULL


@pytest.mark.parametrize("mode", ["limited_multi_turn", "single_turn"])
def test_limited_contexts_drop_their_oldest_turns_until_the_rest_fits(mode):
    shorter, _ = play_tokens(mode, max_model_len=9999, window=2)
    limit = max(prompt_lengths(shorter)) + RESPONSE_LENGTH
    engine, episode = play_tokens(mode, max_model_len=limit, window=-1)
    # Room for one earlier turn: the prompts are those of a window of two.
    assert [request.prompt_ids for request in engine.requests] == [request.prompt_ids for request in shorter.requests]
    assert episode.status is Status.OUT_OF_TURNS
    assert [turn.num_dropped_turns for turn in episode.turns] == [0, 0, 1, 2]
    assert rollout_metrics([episode])["truncation/dropped_turns"] == 3


@pytest.mark.parametrize("mode", ["limited_multi_turn", "single_turn"])
def test_turns_outside_the_window_are_not_counted_as_dropped(mode):
    _, episode = play_tokens(mode, max_model_len=9999, window=1)
    assert [turn.num_dropped_turns for turn in episode.turns] == [0, 0, 0, 0]


def test_a_limited_context_that_cannot_hold_the_present_turn_ends_the_episode():
    first, second, *_ = prompt_lengths(play_tokens("limited_multi_turn", max_model_len=9999, window=1)[0])
    assert second > first  # it also tells the reward
    _, episode = play_tokens("limited_multi_turn", max_model_len=first + RESPONSE_LENGTH, window=1)
    assert episode.status is Status.CONTEXT_FULL
    assert len(episode.turns) == 1


@pytest.mark.parametrize("mode", ["full", "limited_multi_turn", "single_turn"])
def test_a_first_prompt_that_does_not_fit_is_an_error_that_names_the_keys(mode):
    length = prompt_lengths(play_tokens(mode, max_model_len=9999)[0])[0]
    _, episode = play_tokens(mode, max_model_len=length + RESPONSE_LENGTH - 1)
    assert episode.status is Status.CONTEXT_FULL and not episode.turns
    with pytest.raises(ConfigError, match=rf"{length} tokens.*response_length=30.*max_model_len={length + 29}"):
        refuse_when_nothing_fits([episode])


@pytest.mark.parametrize("mode", ["full", "limited_multi_turn", "single_turn"])
def test_one_level_that_is_too_long_ends_its_own_episodes_and_is_counted_and_named(mode, caplog):
    tokenizer = family_tokenizer("qwen2.5")
    chat = Chat(tokenizer, forced_prefix="<think>", is_growing=mode != "single_turn")
    seats = make_seats(num_groups=2, group_size=2)
    seats.seats[0].env = Verbose(CountingConfig())
    engine = ScriptedEngine(script(answer("Up || Up"), answer("Up")), tokenizer)
    episodes = rollout(engine, chat, seats, make_agent(mode), response_length=30, max_model_len=3000)
    seats.close()
    refuse_when_nothing_fits(episodes)
    assert statuses(episodes) == ["context_full", "solved", "solved", "solved"]
    assert "first prompt of tag0" in episodes[0].error
    assert [group.is_complete for group in group_episodes(episodes)] == [False, True]
    metrics = rollout_metrics(episodes)
    assert metrics["truncation/first_prompt"] == metrics["faults/incomplete_groups"] == 1
    [message] = caplog.messages
    assert message == f"tag0: level {episodes[0].seed} is not played: {episodes[0].error}"


@pytest.mark.parametrize(("is_enforced", "limits"), [(False, [30, 30]), (True, [8, 30])])
def test_replies_are_cut_at_the_promised_length_of_their_tag_when_it_is_enforced(is_enforced, limits):
    tokenizer = family_tokenizer("qwen2.5")
    chat = Chat(tokenizer, forced_prefix="<think>")
    engine = RecordingEngine(ScriptedEngine(script([5] * 50), tokenizer))
    seats = make_seats(replace(make_tag(), max_tokens=8), replace(make_tag(), max_tokens=400))
    agent = make_agent(enforce_max_tokens=is_enforced, max_turn=2)
    episodes = rollout(engine, chat, seats, agent, response_length=30)
    assert [request.params.max_tokens for request in engine.requests] == limits * 2
    assert [len(turn.response_ids) for episode in episodes for turn in episode.turns] == [
        limits[0], limits[0], limits[1], limits[1]
    ]  # fmt: skip
    assert rollout_metrics(episodes)["truncation/reply_length"] == 4


def test_a_shorter_reply_leaves_more_room_for_the_prompt():
    tokenizer = family_tokenizer("qwen2.5")
    chat, tag = Chat(tokenizer, forced_prefix="<think>"), replace(make_tag(), max_tokens=8)
    agent = make_agent(enforce_max_tokens=True, max_turn=1)

    def play_in(max_model_len: int) -> tuple[RecordingEngine, Episode]:
        engine, seats = RecordingEngine(ScriptedEngine(script(answer("Break")), tokenizer)), make_seats(tag)
        [episode] = rollout(engine, chat, seats, agent, response_length=RESPONSE_LENGTH, max_model_len=max_model_len)
        return engine, episode

    [length] = prompt_lengths(play_in(9999)[0])
    assert play_in(length + 8)[1].status is Status.OUT_OF_TURNS
    episode = play_in(length + 7)[1]
    assert episode.status is Status.CONTEXT_FULL
    assert f"custom_envs.tag0.max_tokens=8 it exceeds max_model_len={length + 7}" in episode.error


class Verbose(CountingEnv):
    def reset(self, seed: int, member: int = 0) -> str:
        return super().reset(seed, member) + " and so on" * 2000


def test_text_engines_have_no_token_limit_here():
    engine = ScriptedEngine(script(answer("Break")))
    [episode] = rollout(engine, max_model_len=101, response_length=100, agent=make_agent(max_turn=2))
    assert episode.status is Status.OUT_OF_TURNS


@pytest.mark.parametrize(("window", "turns_shown"), [(1, [3]), (2, [2, 3]), (-1, [1, 2, 3]), (9, [1, 2, 3])])
def test_a_limited_context_shows_the_last_turns_with_their_own_numbers(window, turns_shown):
    engine = RecordingEngine(ScriptedEngine(script(answer("Break"))))
    rollout(engine, agent=make_agent("limited_multi_turn", window=window, max_turn=3))
    asked = [message["content"] for message in engine.requests[2].messages if message["role"] == "user"]
    assert len(asked) == len(turns_shown)
    for text, number in zip(asked, turns_shown, strict=True):
        assert f"Turn {number}\n" in text


@pytest.mark.parametrize(("window", "turns_told"), [(1, []), (2, [2]), (-1, [1, 2])])
def test_a_single_turn_tells_the_earlier_turns_in_a_line_each(window, turns_told):
    engine = RecordingEngine(ScriptedEngine(script(answer("Up || Down"), "what?", answer("Up"))))
    rollout(engine, agent=make_agent("single_turn", window=window, max_turn=3))
    system, user = engine.requests[2].messages
    assert (system["role"], user["role"]) == ("system", "user")
    lines = {1: "Turn 1: Up || Down, reward 0.5", 2: "Turn 2: no usable action, reward 0"}
    told = "".join(f"{lines[number]}\n" for number in turns_told)
    head = f"Earlier turns:\n{told}" if told else ""
    assert user["content"].startswith(f"{head}Reward: 0\n{INVALID_NOTE}\nTurn 3\n")


def two_turns() -> Episode:
    [episode] = rollout(
        ScriptedEngine(lambda request: [5, 6], None),
        Chat(family_tokenizer("qwen2.5"), forced_prefix="<think>"),
        agent=make_agent(max_turn=2),
    )
    episode.turns[0].reward, episode.turns[1].reward = 1.0, 0.25
    return episode


def test_turn_scores_keep_the_format_penalty():
    [sample] = to_samples([two_turns()], [99.0], is_full_context=True, use_turn_scores=True)
    assert sample.turn_scores == [0.9, 0.15]
    each = to_samples([two_turns()], [99.0], is_full_context=False, use_turn_scores=True)
    assert [sample.turn_scores for sample in each] == [[0.9], [0.15]]


def test_the_score_of_an_episode_stands_at_its_last_reply_or_at_every_turn_of_a_limited_context():
    [sample] = to_samples([two_turns()], [99.0], is_full_context=True, use_turn_scores=False)
    assert sample.turn_scores == [0.0, 99.0]
    each = to_samples([two_turns()], [99.0], is_full_context=False, use_turn_scores=False)
    assert [sample.turn_scores for sample in each] == [[99.0], [99.0]]


def test_an_episode_without_a_reply_is_no_training_sample():
    episode = replace(two_turns(), turns=[])
    with pytest.raises(AssertionError, match="incomplete"):
        to_samples([episode], [0.0], is_full_context=True, use_turn_scores=False)
