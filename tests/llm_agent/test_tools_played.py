"""Environments with tools are played: results as messages of their own, in every mode; faults are told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from ragen.config import load_config
from ragen.engine.scripted import ScriptedEngine
from ragen.env import REGISTRY, register
from ragen.evaluation.show import to_text
from ragen.llm_agent.agent_proxy import stop_strings
from ragen.llm_agent.build import has_tools
from ragen.llm_agent.chat import Chat
from ragen.llm_agent.ctx_manager import to_samples
from ragen.llm_agent.es_manager import EsManager
from ragen.llm_agent.metrics import rollout_metrics
from ragen.llm_agent.parsing import parse_reply
from ragen.llm_agent.policies import has_random, has_solver, play_policy
from ragen.tracking.episodes import episode_from_json, episode_to_json
from tests.llm_agent.counting import (
    RecordingEngine,
    answer,
    make_agent,
    make_seats,
    make_tag,
    play,
    rollout,
    script,
    statuses,
    users,
)
from tests.llm_agent.templates import family_tokenizer

MODES = ["full", "limited_multi_turn", "single_turn"]


@pytest.fixture(autouse=True, scope="module")
def tool_environment() -> Iterator[None]:
    register("echo_tool", "tests.env.tool_envs:EchoTool")
    yield
    del REGISTRY["echo_tool"]


ECHO = make_tag("echo_tool", max_steps=6)


def call(text: str) -> str:
    return f'go</think><tool_call>\n{{"name": "echo", "arguments": {{"text": "{text}"}}}}\n</tool_call>'


RIGHT = answer("please")


def roles(episode) -> list[str]:
    return [turn.role for turn in episode.turns]


def test_results_come_back_as_tool_messages():
    episode = play(call("hi"), answer('echo(text="ho")'), RIGHT, tag=ECHO)
    assert episode.is_success and roles(episode) == ["user", "tool", "tool"] and users(episode)[1:] == ["hi", "ho"]
    assert [turn.executed for turn in episode.turns] == [['echo(text="hi")'], ['echo(text="ho")'], ["please"]]
    assert [turn.tool_result for turn in episode.turns] == ["hi", "ho", None]
    assert [message["role"] for message in episode.messages()] == [
        "system", "user", "assistant", "tool", "assistant", "tool", "assistant",
    ]  # fmt: skip
    assert episode_from_json(episode_to_json(episode)) == episode
    assert "[tool]\nhi\n[assistant]" in to_text(episode, "x")


def test_the_prompt_describes_tools_and_how_to_call_them():
    episode = play(RIGHT, tag=ECHO)
    assert episode.system.splitlines()[2:4] == ["You have 6 calls and answers.", "Tools:"]
    assert '{"name": "echo", "description": "Says the text again."' in episode.system
    assert episode.turns[0].user.endswith(
        'Calls and answers left: 6. Reply with <think>your thoughts</think> and then <tool_call>{"name": tool, '
        '"arguments": {...}}</tool_call> or <answer>your answer</answer> in at most 40 tokens.'
    )
    plain = play('echo(text="hi")</answer>', "please</answer>", tag=ECHO, enable_think=False)
    assert plain.is_success and plain.turns[1].user == "hi"
    assert "Call one with <answer>tool(argument=value)</answer>." in plain.system
    assert "Reply with <answer>tool(argument=value)</answer> or <answer>your answer</answer> in" in plain.turns[0].user


def test_without_a_thought_both_forms_are_read():
    block = '<tool_call>{"name": "echo", "arguments": {"text": "hi"}}</tool_call>'
    episode = play(block, "please</answer>", tag=ECHO, enable_think=False)
    assert episode.is_success and episode.turns[0].executed == ['echo(text="hi")']


def test_a_call_is_nothing_to_an_environment_without_tools():
    text = "<think>hm</think>" + call("hi").partition("</think>")[2]
    options = {"enable_think": True, "action_sep": "||", "max_actions": 2, "is_free_text": True}
    assert not parse_reply(text, **options).is_parsed
    assert parse_reply(text, **options, has_tools=True).actions == [text.removeprefix("<think>hm</think>")]
    assert stop_strings(("</answer>",), has_tools=True) == ("</answer>", "</tool_call>")
    assert stop_strings(("</answer>",), has_tools=False) == ("</answer>",)
    assert stop_strings((), has_tools=True) == ()


def test_sampling_ends_with_a_call_where_there_are_tools():
    engine = RecordingEngine(ScriptedEngine(script(call("hi"), RIGHT)))
    rollout(engine, seats=make_seats(ECHO, make_tag()))
    assert [request.params.stop_strings for request in engine.requests[:2]] == [
        ("</answer>", "</tool_call>"),
        ("</answer>",),
    ]


def test_what_went_wrong_is_told_and_counted_and_the_reply_pays_for_its_own_faults_only():
    replies = [call("raise"), "x</think><tool_call>{</tool_call>", answer("echo(text=3)"), answer("yell(text='a')")]
    replies += [call("refuse"), call("fine")]
    episode = play(*replies, tag=replace(ECHO, max_actions_per_traj=9), max_turn=6)
    said = [turn.tool_result or "" for turn in episode.turns]
    assert all(text.startswith("Error: ") for text in said[:5]) and said[5] == "fine"
    assert [turn.penalty for turn in episode.turns] == [0, -0.1, -0.1, -0.1, 0, 0]
    metrics = rollout_metrics([episode])
    assert {name: value for name, value in metrics.items() if name.startswith("tools/")} == {
        "tools/calls": 6,
        "tools/syntax_errors": 1,
        "tools/unknown_tools": 1,
        "tools/argument_errors": 1,
        "tools/refusals": 1,
        "tools/timeouts": 0,
        "tools/exceptions": 1,
    }
    assert metrics["tag0/tool_calls"] == 1 and metrics["tag0/tool_errors"] == pytest.approx(5 / 6)
    assert not any(name.startswith("tools/") for name in rollout_metrics([play(answer("Up"))]))


@pytest.mark.parametrize("max_workers", [1, 2])
@pytest.mark.parametrize("text", ["hang", "spin"])
def test_a_tool_that_hangs_costs_a_turn_and_not_the_episode(text, max_workers):
    tag = replace(ECHO, step_timeout=1.0, max_workers=max_workers, parallel_friendly=max_workers > 1)
    seats = make_seats(tag, group_size=max_workers)
    episodes = rollout(ScriptedEngine(script(call(text), call("hi"), RIGHT)), seats=seats)
    assert statuses(episodes) == ["solved"] * max_workers
    for episode in episodes:
        assert episode.turns[0].tool_result == "Error: the tool did not return within 1 s."
        assert users(episode)[1:] == ["Error: the tool did not return within 1 s.", "hi"]
    assert rollout_metrics(episodes)["tools/timeouts"] == max_workers


# --- contexts -------------------------------------------------------------------------------------------------------


def tokens(family: str, mode: str, *replies: str, window: int = -1, **agent):
    """Episodes played with a tokenizer, and what the engine was asked."""
    think = agent.get("enable_think", True)
    chat = Chat(
        family_tokenizer(family),
        forced_prefix="<think>" if think else "<answer>",
        is_growing=mode != "single_turn",
        has_tools=True,
    )
    engine = RecordingEngine(ScriptedEngine(script(*replies), chat.tokenizer))
    agent = make_agent(mode, window=window, **agent)
    [episode] = rollout(engine, chat, make_seats(replace(ECHO, max_tokens=100)), agent, response_length=120)
    return chat, engine, episode


@pytest.mark.parametrize("family", ["qwen2.5_tools", "qwen2.5", "llama3", "gemma3", "deepseek", "qwen3"])
@pytest.mark.parametrize("mode", MODES)
def test_the_tokens_trained_on_are_the_tokens_sampled(family, mode):
    _, engine, episode = tokens(family, mode, call("hi"), "no block", call("raise"), RIGHT, window=2)
    assert episode.is_success and len(episode.turns) == 4
    samples = to_samples([episode], [1.0], is_full_context=mode == "full", use_turn_scores=False)
    exchanges = engine.of_session(0)
    if mode == "full":
        [sample] = samples
        for (start, end), (request, completion) in zip(sample.turn_spans, exchanges, strict=True):
            assert sample.input_ids[:start] == list(request.prompt_ids)
            assert sample.input_ids[start:end] == completion.token_ids
        assert sum(sample.loss_mask) == sum(len(completion.token_ids) for _, completion in exchanges)
    else:
        for sample, (request, completion) in zip(samples, exchanges, strict=True):
            assert sample.input_ids == list(request.prompt_ids) + completion.token_ids
            assert sample.loss_mask == [0] * len(request.prompt_ids) + [1] * len(completion.token_ids)


def test_a_window_that_begins_with_a_result_shows_the_task_instead():
    chat, engine, episode = tokens("qwen2.5_tools", "limited_multi_turn", call("hi"), call("ho"), RIGHT, window=2)
    last = chat.decode(engine.requests[2].prompt_ids)
    assert roles(episode) == ["user", "tool", "tool"]
    assert 'State:\nSay the word of level 7.\nResult of echo(text="hi"):\nhi\nReply with' in last
    assert last.count("<tool_response>") == 1 and "<tool_response>\nho\n</tool_response>" in last
    alone = tokens("qwen2.5_tools", "limited_multi_turn", call("hi"), RIGHT, window=1)[2]
    assert roles(alone) == ["user", "user"] and "Result of echo" in alone.turns[1].user


def test_one_message_holds_task_result_and_earlier_calls():
    chat, engine, episode = tokens("qwen2.5_tools", "single_turn", call("hi"), call("ho"), RIGHT)
    assert roles(episode) == ["user"] * 3
    assert episode.turns[2].user.splitlines()[:3] == [
        "Earlier turns:",
        'Turn 1: echo(text="hi") -> hi, reward 0',
        'Turn 2: echo(text="ho") -> ho, reward 0',
    ]
    assert 'Say the word of level 7.\nResult of echo(text="ho"):\nho' in episode.turns[2].user
    assert "Functions:" in chat.decode(engine.requests[2].prompt_ids)


def test_a_window_of_text_messages_begins_with_the_task_as_well():
    engine = RecordingEngine(ScriptedEngine(script(call("hi"), call("ho"), RIGHT)))
    rollout(engine, seats=make_seats(ECHO), agent=make_agent("limited_multi_turn", window=2))
    messages = engine.requests[2].messages
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[1]["content"].startswith("State:\nSay the word")
    assert messages[3]["content"] == "<tool_response>\nho\n</tool_response>"


# --- players without a model ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["calculator", "python_expression", "lookup"])
@pytest.mark.parametrize("think", [True, False])
def test_solver_and_chance_call_tools(name, think):
    config = load_config(name, ["es_manager.val.env_groups=12", f"agent_proxy.enable_think={think}"])
    assert has_tools(config) and not has_tools(load_config("countdown"))
    environments = EsManager(config.es_manager.val, config.custom_envs)
    solved, random = (play_policy(config, environments, noise=noise, base_seed=1) for noise in (0.0, 1.0))
    assert statuses(solved) == ["solved"] * 12
    assert all(episode.turns[0].tool_result is not None for episode in solved)
    assert all(("<tool_call>" in episode.turns[0].text) == think for episode in solved)
    assert {turn.is_invalid for episode in [*solved, *random] for turn in episode.turns} == {False}
    assert sum(episode.is_success for episode in random) < 4
    [tag] = config.es_manager.val.env_configs.tags
    assert has_random(environments, tag) and has_solver(environments, tag)
