"""Calls bring results or reasons, answers end the episode, and using a tool changes nothing."""

from functools import partial

import pytest

from ragen.env import ToolEnv, boundary, check_env
from ragen.env.boundary import EnvFault
from tests.env.tool_envs import ECHO, EchoTool, EchoToolConfig

RESULTS = {
    'echo(text="hi", times=2)': ("hi hi", ""),
    'echo(text="raise")': ("Error: ZeroDivisionError: broken (tool_envs.py:", "exception"),
    'echo(text="exit")': ("Error: SystemExit: 3", "exception"),
    'echo(text="number")': ("Error: expected a text.", "exception"),
    'echo(text="refuse")': ("Error: not today.", "refused"),
    "echo(text=1)": ("Error: echo: text must be a string, it is 1.", "arguments"),
    "<tool_call>{}</tool_call>": ("Error: a call has the form", "syntax"),
    "shout(text='a')": ("Error: there is no tool 'shout', the tools are: echo.", "unknown_tool"),
}


@pytest.mark.parametrize("action", RESULTS)
def test_a_call_brings_a_result_or_the_reason_why_not(action):
    env = EchoTool()
    env.reset(1)
    result = boundary.step(env, action)
    text, problem = RESULTS[action]
    assert result.tool_result is not None and result.tool_result.startswith(text)
    assert result.tool_problem == problem and not result.is_done and result.reward == 0
    assert result.info["tool_calls"] == 1 and result.info["tool_errors"] == float(bool(problem))
    assert result.info["action_is_valid"] == float(problem not in ("syntax", "unknown_tool", "arguments"))
    assert result.observation.startswith("Say the word of level 1.\nResult of ") and text in result.observation


def test_an_answer_ends_the_episode():
    env = EchoTool()
    env.reset(1)
    right = env.step(" please ")
    assert (right.reward, right.terminated, right.tool_result, right.info["success"]) == (1, True, None, 1)
    env.reset(1)
    wrong = env.step("no")
    assert (wrong.reward, wrong.terminated, wrong.truncated, wrong.info["success"]) == (0, True, False, 0)


def test_calls_without_end_are_truncated():
    env = EchoTool(EchoToolConfig(max_steps=2))
    env.reset(1)
    results = [env.step('echo(text="a")') for _ in range(2)]
    assert [result.truncated for result in results] == [False, True]


def test_a_long_result_is_cut_and_says_so():
    env = EchoTool()
    env.reset(1)
    result = env.step('echo(text="long")').tool_result
    assert result is not None and len(result) <= 2000 and "of 50,000 characters left out" in result


class Restless(EchoTool):
    def use(self, name, arguments):
        self.said = "changed"
        return "done"


class Twins(EchoTool):
    def tools(self):
        return [ECHO, ECHO]


def test_the_checker_covers_tools():
    check_env(EchoTool, seeds=range(2))
    with pytest.raises(AssertionError, match="using a tool changed the environment"):
        check_env(Restless, seeds=[1])
    with pytest.raises(AssertionError, match="tools of different names"):
        check_env(Twins, seeds=[1])


def test_tools_are_checked_at_the_border():
    env = EchoTool()
    assert boundary.start(env, 1, 0).tools == (ECHO,)
    with pytest.raises(EnvFault, match="expected tools of different names"):
        boundary.start(Twins(), 1, 0)
    env.tools = partial(list, "ab")  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(EnvFault, match=r"records of ragen\.env\.Tool"):
        boundary.start(env, 1, 0)
    assert issubclass(EchoTool, ToolEnv)
