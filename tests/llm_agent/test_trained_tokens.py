"""The tokens that are trained on are the tokens that were sampled, with their log-probs, in every mode and template."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from ragen.config import load_config
from ragen.config.schema import EnvConfigsConfig, EnvSetConfig
from ragen.engine.base import Completion, Request
from ragen.engine.native.engine import NativeEngine
from ragen.engine.scripted import ScriptedEngine
from ragen.llm_agent.agent_proxy import forced_prefix
from ragen.llm_agent.chat import Chat
from ragen.llm_agent.ctx_manager import to_samples
from ragen.llm_agent.es_manager import EsManager, levels_from
from ragen.seeding import Rng
from ragen.types import Episode, Sample
from tests.engine.families import SHAPE
from tests.llm_agent.counting import RecordingEngine, make_agent, make_seats, make_tag, rollout
from tests.llm_agent.templates import family_tokenizer

MODES = [("full", -1), ("limited_multi_turn", 1), ("limited_multi_turn", 2), ("limited_multi_turn", -1)]
MODES += [("single_turn", 1), ("single_turn", 2), ("single_turn", -1)]


REAL_TAGS = ("Bandit", "TwoArmedBandit", "CoordSokoban", "CoordFrozenLake")


@cache
def random_model(vocab_size: int) -> Any:
    torch.manual_seed(0)
    config = Qwen2Config(**(SHAPE | {"vocab_size": vocab_size, "max_position_embeddings": 4096}))
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()


class ImaginedLogprobs(ScriptedEngine):
    """A scripted engine whose log-probs can be told apart."""

    def complete(self, request: Request) -> Completion:
        completion = super().complete(request)
        logprobs = [-0.001 * (request.seed % 997) - 0.01 * position for position in range(len(completion.token_ids))]
        return replace(completion, logprobs=logprobs)


def scripted_engine(chat: Chat, actions: list[str]) -> ScriptedEngine:
    """Good answers, unusable ones, long ones that are cut, and some without an end token; by the request's noise."""

    def reply(request: Request) -> str | list[int]:
        rng = Rng(request.seed)
        thought = "look" + " up" * rng.below(4) + ("</think>" if chat.opened_prefix.startswith("<think>") else "")
        answer = f"<answer>{rng.choice(actions)} || {rng.choice([*actions, 'Jump'])}</answer>"
        text = (thought + answer) if "think" in thought else answer.removeprefix("<answer>")
        text = rng.choice([text, text, text, "no idea", text + " so long" * 60])
        ids = chat.tokenizer.encode(text, add_special_tokens=False)
        return ids + [chat.end_of_turn_id] * rng.below(2) if ids[-1] != chat.end_of_turn_id else ids

    return ImaginedLogprobs(reply)


def record(engine_name: str, chat: Chat, seats: EsManager, agent, actions: list[str]):
    if engine_name == "native":
        engine = NativeEngine(random_model(len(chat.tokenizer)), chat.tokenizer, max_num_seqs=3, max_model_len=4000)
    else:
        engine = scripted_engine(chat, actions)
    recorder = RecordingEngine(engine)
    episodes = rollout(recorder, chat, seats, agent, response_length=24)
    seats.close()
    return recorder, episodes


def check_samples(recorder: RecordingEngine, episodes: list[Episode], *, is_full: bool) -> None:
    """Every sample is what the engine saw and wrote, and exactly what it wrote is trained on."""
    for session, episode in enumerate(episodes):
        exchanges = recorder.of_session(session)
        samples = to_samples([episode], [episode.score], is_full_context=is_full, use_turn_scores=False)
        assert len(exchanges) == len(episode.turns)
        if is_full:
            [sample] = samples
            check_full_sample(sample, exchanges)
            assert sample.turn_scores == [0.0] * (len(exchanges) - 1) + [episode.score]
        else:
            for sample, (request, completion) in zip(samples, exchanges, strict=True):
                assert sample.input_ids == list(request.prompt_ids) + completion.token_ids
                assert sample.loss_mask == [0] * len(request.prompt_ids) + [1] * len(completion.token_ids)
                assert sample.turn_scores == [episode.score]
                check_full_sample(sample, [(request, completion)])


def check_full_sample(sample: Sample, exchanges: list[tuple[Request, Completion]]) -> None:
    sampled = [token for _, completion in exchanges for token in completion.token_ids]
    logprobs = [logprob for _, completion in exchanges for logprob in completion.logprobs]
    assert [token for token, is_trained in zip(sample.input_ids, sample.loss_mask) if is_trained] == sampled
    assert [logprob for logprob, is_trained in zip(sample.logprobs, sample.loss_mask) if is_trained] == logprobs
    assert all(logprob == 0 for logprob, is_trained in zip(sample.logprobs, sample.loss_mask) if not is_trained)
    assert len(sample.input_ids) == len(sample.loss_mask) == len(sample.logprobs)
    assert len(sample.turn_spans) == len(sample.turn_scores) == len(exchanges)
    for (start, end), (request, completion) in zip(sample.turn_spans, exchanges, strict=True):
        assert sample.input_ids[:start] == list(request.prompt_ids)
        assert sample.input_ids[start:end] == completion.token_ids
        assert sample.loss_mask[start:end] == [1] * (end - start)


@pytest.mark.parametrize("engine_name", ["native", "scripted"])
@pytest.mark.parametrize("enable_think", [True, False])
@pytest.mark.parametrize(("mode", "window"), MODES)
def test_the_tokens_trained_on_are_the_tokens_sampled(mode, window, enable_think, engine_name):
    chat = Chat(
        family_tokenizer("qwen2.5"), forced_prefix=forced_prefix(enable_think), is_growing=mode != "single_turn"
    )
    agent = make_agent(mode, window=window, enable_think=enable_think, max_turn=4)
    seats = make_seats(make_tag(max_actions=7), num_groups=2, group_size=3)
    recorder, episodes = record(engine_name, chat, seats, agent, ["Up", "Down", "Break"])
    assert len(episodes) == 6
    check_samples(recorder, episodes, is_full=mode == "full")
    if engine_name == "scripted":
        assert {turn.is_parsed for episode in episodes for turn in episode.turns} == {True, False}


@pytest.mark.parametrize("family", ["llama3", "gemma", "deepseek", "llama2", "qwen3"])
@pytest.mark.parametrize("mode", ["full", "limited_multi_turn", "single_turn"])
def test_the_tokens_trained_on_are_the_tokens_sampled_whatever_the_template(family, mode):
    chat = Chat(family_tokenizer(family), forced_prefix="<think>", is_growing=mode != "single_turn")
    recorder, episodes = record(
        "scripted", chat, make_seats(group_size=4), make_agent(mode, window=2), ["Up", "Down", "Break"]
    )
    check_samples(recorder, episodes, is_full=mode == "full")


@pytest.mark.parametrize("engine_name", ["native", "scripted"])
@pytest.mark.parametrize("tag", REAL_TAGS)
@pytest.mark.parametrize("mode", ["full", "limited_multi_turn", "single_turn"])
def test_the_tokens_trained_on_are_the_tokens_sampled_in_the_real_environments(mode, tag, engine_name):
    config = load_config("_2_sokoban", [])
    env_set = EnvSetConfig(env_groups=2, group_size=2, env_configs=EnvConfigsConfig(tags=(tag,), n_groups=(2,)))
    seats = EsManager(env_set, config.custom_envs)
    chat = Chat(family_tokenizer("qwen2.5"), forced_prefix="<think>", is_growing=mode != "single_turn")
    actions = list(seats.reset(levels_from(7, 2))[0].env.actions.values())
    recorder, episodes = record(engine_name, chat, seats, make_agent(mode, window=2, max_turn=3), actions)
    assert not any(episode.status.is_fault for episode in episodes)
    check_samples(recorder, episodes, is_full=mode == "full")
    first_prompts = {tuple(recorder.of_session(session)[0][0].prompt_ids) for session in (0, 1)}
    assert len(first_prompts) == 1, "members of a group share their first prompt"


def test_rollouts_of_a_model_repeat_with_the_seed_and_change_with_the_noise():
    def replies(noise_seed: int, max_num_seqs: int) -> list[list[int]]:
        chat = Chat(family_tokenizer("qwen2.5"), forced_prefix="<think>")
        engine = NativeEngine(
            random_model(len(chat.tokenizer)), chat.tokenizer, max_num_seqs=max_num_seqs, max_model_len=4000
        )
        episodes = rollout(
            engine, chat, make_seats(group_size=4), make_agent(max_turn=2), response_length=8, noise_seed=noise_seed
        )
        return [turn.response_ids for episode in episodes for turn in episode.turns]

    first = replies(noise_seed=1, max_num_seqs=8)
    assert replies(noise_seed=1, max_num_seqs=2) == first
    assert replies(noise_seed=2, max_num_seqs=8) != first
    assert len({tuple(reply) for reply in first}) == 8
