"""The child process that answers prompts: the prompts, tokens and replies of a rollout."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from ragen.config.load import load_config
from ragen.errors import RagenError
from ragen.evaluation.answer import Answerer, fitting_length, prompt_ids, without_tools
from ragen.llm_agent.agent_proxy import RolloutPlan, forced_prefix
from ragen.llm_agent.build import build_agent, build_chat, sampling_params
from ragen.llm_agent.es_manager import EsManager, levels_from
from ragen.llm_agent.policies import play_replies
from ragen.llm_agent.prompts import tool_description
from ragen.models.resolve import TINY_ROOT
from ragen.types import conversation
from ragen.view.playing.model import completion_of, request_of
from ragen.view.playing.session import Level, Session
from tests.llm_agent.templates import family_tokenizer

MODEL = TINY_ROOT / "frozen_lake"


def lake(config) -> EsManager:
    envs = replace(config.es_manager.val, env_groups=1, group_size=1)
    envs = replace(envs, env_configs=replace(envs.env_configs, tags=["FrozenLake"], n_groups=[1]))
    return EsManager(envs, config.custom_envs)


@pytest.mark.parametrize("has_ids", [True, False])
def test_a_prompt_has_the_tokens_of_a_rollout(has_ids):
    from ragen.modeling.load import load_tokenizer

    config, seen = load_config(), []
    chat = build_chat(config, load_tokenizer(MODEL))

    def reply(request) -> str:
        seen.append(list(request.prompt_ids))
        return "look</think><answer>Up || nowhere</answer>"

    [episode] = play_replies(config, lake(config), reply, base_seed=7, chat=chat)
    assert len(seen) > 2
    for number, turn in enumerate(episode.turns):
        earlier = episode.turns[:number]
        messages: list[dict] = [*conversation(episode.system, earlier), {"role": "user", "content": turn.user}]
        for message, past in zip(messages[2::2], earlier, strict=True):
            message["ids"] = past.response_ids if has_ids else []
        assert prompt_ids(chat, messages, forced_prefix(True)) == seen[number]


def test_greedy_replies_are_those_of_an_evaluation():
    config = load_config(overrides=["model_path=tiny"])
    agent = build_agent(config, env_types=["frozen_lake"])
    params = replace(sampling_params(config, agent.chat, is_validation=True), temperature=0.0)
    [expected] = agent.rollout(lake(config), RolloutPlan(levels=levels_from(7, 1), noise_seed=0, params=params))
    session, answer = Session(Level(run=None, tag="FrozenLake", seed=7)), Answerer("tiny")
    while not session.is_over:
        session.answer(completion_of(answer(request_of(session, 0.0))))
    assert [turn.text for turn in session.episode.turns] == [turn.text for turn in expected.turns]
    assert [turn.response_ids for turn in session.episode.turns] == [turn.response_ids for turn in expected.turns]
    assert session.episode.status is expected.status


def test_a_full_context_is_said_before_anything_is_sampled():
    session = Session(Level(run=None, tag="FrozenLake", seed=7))
    with pytest.raises(RagenError, match=r"The context is full: the prompt has \d+ tokens.*max_model_len"):
        Answerer("tiny")(request_of(session, 0.0) | {"max_model_len": 200})


def test_the_context_is_that_of_the_model_where_it_is_shorter():
    positions = json.loads((MODEL / "config.json").read_text())["max_position_embeddings"]
    assert fitting_length(MODEL, 10) == 10
    assert fitting_length(MODEL, 10**9) == positions


def test_the_process_answers_line_by_line_and_survives_what_it_cannot_answer():
    session = Session(Level(run=None, tag="FrozenLake", seed=7))
    good = request_of(session, 1.0) | {"id": 2}
    lines = [good | {"id": 1, "env_type": "chess"}, good, good | {"id": 3, "messages": []}]
    command = [sys.executable, "-m", "ragen.evaluation.answer", "tiny"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdin and child.stdout
        assert json.loads(child.stdout.readline()) == {"is_ready": True}
        child.stdin.write("".join(json.dumps(line) + "\n" for line in lines))
        child.stdin.flush()
        answers = [json.loads(child.stdout.readline()) for _ in lines]
        child.stdin.close()  # nobody asks any more
        assert child.wait(60) == 0
    assert [answer["id"] for answer in answers] == [1, 2, 3]
    assert "chess" in answers[0]["error"] and "error" in answers[2]
    assert answers[1]["text"].startswith("<think>")
    assert len(answers[1]["ids"]) == len(answers[1]["logprobs"]) == len(answers[1]["entropies"])


@pytest.mark.parametrize("family", ["qwen2.5_tools", "qwen2.5", "gemma3"])
def test_a_prompt_with_tools_has_the_tokens_of_a_rollout(family):
    """Where the template shows tools itself, their description leaves the system message."""
    config, seen = load_config("calculator", ["actor_rollout_ref.rollout.max_model_len=4000"]), []
    chat = build_chat(config, family_tokenizer(family))
    session = Session(Level(run=None, tag="Calculator", seed=7))
    call, right = (text.join(["hm</think><answer>", "</answer>"]) for text in session.solution() or [])

    def reply(request) -> str:
        seen.append(list(request.prompt_ids))
        return [call, right][len(seen) - 1]

    envs = replace(config.es_manager.val, env_groups=1, group_size=1)
    envs = replace(envs, env_configs=replace(envs.env_configs, tags=["Calculator"], n_groups=[1]))
    [episode] = play_replies(config, EsManager(envs, config.custom_envs), reply, base_seed=7, chat=chat)
    fields = {"tools_text": tool_description(session.seat.tools, config.agent_proxy)}
    system = episode.system if chat.takes_tools else without_tools(episode.system, fields)
    assert without_tools(f"{system}\n{fields['tools_text']}", fields) == system
    for number, turn in enumerate(episode.turns):
        earlier = episode.turns[:number]
        messages: list[dict] = [*conversation(episode.system, earlier), {"role": turn.role, "content": turn.user}]
        for message, past in zip(messages[2::2], earlier, strict=True):
            message["ids"] = past.response_ids
        assert prompt_ids(chat, messages, forced_prefix(True), session.seat.tools) == seen[number]
    assert request_of(session, 0.0)["tools"][0]["name"] == "calculate"
    assert request_of(session, 0.0)["stop_strings"] == ["</answer>", "</tool_call>"]
    session.close()
