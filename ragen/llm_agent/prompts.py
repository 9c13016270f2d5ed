"""The words around an observation. What they say is true for the tag that is played."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ragen.config.schema import AgentProxyConfig
from ragen.env.tools import TOOL_CALL, Tool
from ragen.llm_agent.es_manager import Seat
from ragen.llm_agent.parsing import ANSWER, THINK, parse_reply
from ragen.seeding import Rng
from ragen.text import shorten
from ragen.types import Turn

ASSISTANT = "You are a helpful assistant."
LONGEST_EXAMPLE = 3
"""Most actions of the example answer."""
LONGEST_SUMMARY = 200
"""Characters of a free-text answer, and of a tool's result, in the summary of earlier turns."""
BLOCK = '{"name": tool, "arguments": {...}}'.join(TOOL_CALL)
FUNCTION = "tool(argument=value)".join(ANSWER)
"""How a tool is called: with a thought before it, and without."""


@dataclass(frozen=True, slots=True)
class Words:
    """What a prompt calls an answer."""

    one: str
    many: str
    content: str
    """What stands in the answer block."""
    unusable: str
    """What is said of a turn without effect."""
    invalid_note: str
    has_tools: bool = False

    def form(self, enable_think: bool) -> str:
        """The required form of a reply."""
        thought, answer = "your thoughts".join(THINK) if enable_think else "", self.content.join(ANSWER)
        if not self.has_tools:
            return thought + answer
        return f"{thought} and then {BLOCK} or {answer}" if enable_think else f"{FUNCTION} or {answer}"


INVALID_NOTE = "Your last answer had no usable action."
ACTIONS = Words("action", "actions", "your actions", "no usable action", INVALID_NOTE)
TEXTS = Words("answer", "answers", "your answer", "no answer", "Your last reply had no answer in the required form.")
NO_CALL_NOTE = "Your last reply had neither a call nor an answer in the required form."
CALLS = Words("call or answer", "calls and answers", "your answer", "neither call nor answer", NO_CALL_NOTE, True)


def words_of(seat: Seat) -> Words:
    if seat.tools:
        return CALLS
    return TEXTS if seat.is_free_text else ACTIONS


def system_message(seat: Seat, agent: AgentProxyConfig, *, describes_tools: bool = True) -> str:
    """The task, the symbols, the actions and the budget; or what the environment says instead. Then the tools."""
    instruction = seat.spec.env_instruction.strip()
    if seat.system_prompt.strip():
        lines = [seat.system_prompt.strip(), instruction]
    else:
        lines = [ASSISTANT, instruction, seat.notes.strip(), limits(seat, agent)]
    if seat.tools and describes_tools:
        lines.append(tool_description(seat.tools, agent))
    return "\n".join(line for line in lines if line)


def tool_description(tools: Sequence[Tool], agent: AgentProxyConfig) -> str:
    """The tools in the system message, for templates that do not show them."""
    schemas = [json.dumps(tool.to_json()["function"], ensure_ascii=False) for tool in tools]
    how = BLOCK if agent.enable_think else FUNCTION
    return "\n".join(["Tools:", *schemas, f"Call one with {how}. The next message holds its result."])


def limits(seat: Seat, agent: AgentProxyConfig) -> str:
    """What may be answered, and how often: "Actions: Up, Down. You have 4 actions, one per answer."."""
    words, budget = words_of(seat), seat.spec.max_actions_per_traj
    names = "" if seat.actions is None else f"Actions: {', '.join(seat.actions.values())}. "
    if budget == 1:
        return f"{names}You have 1 {words.one}."
    if seat.is_free_text:
        return f"You have {budget} {words.many}."
    if agent.max_actions_per_turn == 1:
        return f"{names}You have {budget} actions, one per answer."
    most = agent.max_actions_per_turn
    return f"{names}You have {budget} actions, at most {most} per answer, separated by {agent.action_sep}."


def reply_form(seat: Seat, agent: AgentProxyConfig) -> str:
    """The required form of a reply, and one finished example of it where the configuration shows one.

    With the actions Right and Down drawn for the level: "<answer>your actions</answer>, for example
    <answer>Right || Down</answer>,".
    """
    form = words_of(seat).form(agent.enable_think)
    answer = example_answer(seat, agent) if agent.example_answer else ""
    if not answer:
        return form
    thought = "...".join(THINK) if agent.enable_think else ""
    return f"{form}, for example {thought}{answer.join(ANSWER)},"


def example_answer(seat: Seat, agent: AgentProxyConfig) -> str:
    """A finished answer: the environment's own, or actions of the level; empty where there is none."""
    return seat.example if seat.is_free_text else f" {agent.action_sep} ".join(example_actions(seat, agent))


def example_actions(seat: Seat, agent: AgentProxyConfig) -> list[str]:
    """Actions of the level, drawn from its seed: the same for its whole group, and no hint at its solution.

    Two or three where an answer may hold as many, so that the separator is seen; none where no name can be answered
    with, because it holds the separator or a tag.
    """
    names = (seat.actions or {}).values()
    usable = [name.strip() for name in names if _can_be_answered(name.strip(), agent.action_sep)]
    if not usable:
        return []
    rng = Rng(seat.seed, "example")
    most = min(agent.max_actions_per_turn, LONGEST_EXAMPLE, seat.spec.max_actions_per_traj)
    num_actions = 1 if most == 1 else 2 + rng.below(most - 1)
    return [rng.choice(usable) for _ in range(num_actions)]


def unnameable_actions(seat: Seat, agent: AgentProxyConfig) -> list[str]:
    """The actions of the level that no reply can name, because their names hold the separator or a tag."""
    names, is_lenient = (seat.actions or {}).values(), agent.answer_parsing == "lenient"
    return [name for name in names if not _can_be_answered(name.strip(), agent.action_sep, is_lenient)]


@lru_cache(maxsize=1024)  # asked about every action, for every prompt
def _can_be_answered(name: str, action_sep: str, is_lenient: bool = False) -> bool:
    known = {name.lower()} if is_lenient else ()
    read = parse_reply(
        name.join(ANSWER),
        enable_think=False,
        action_sep=action_sep,
        max_actions=2,
        known=known,
        is_lenient=is_lenient,
    )
    return read.actions == [name]


def user_message(seat: Seat, turns: list[Turn], agent: AgentProxyConfig) -> str:
    """What the agent is told before its next reply: the last reward, the state, the actions left, the form."""
    words, lines = words_of(seat), []
    if turns:
        lines.append(f"Reward: {_number(turns[-1].reward)}")
        if not turns[-1].executed:
            lines.append(words.invalid_note)
    left = f"{words.many.capitalize()} left: {seat.num_actions_left}."
    lines += [f"Turn {len(turns) + 1}", state_message(seat, seat.observation, agent, left=left)]
    return "\n".join(lines)


def state_message(seat: Seat, observation: str, agent: AgentProxyConfig, *, left: str = "") -> str:
    """A state, and the form of the reply to it."""
    form = f"Reply with {reply_form(seat, agent)} in at most {seat.max_tokens} tokens."
    return "\n".join(["State:", observation, f"{left} {form}" if left else form])


def summary(turns: list[Turn], seat: Seat, *, first: int, action_sep: str) -> str:
    """Earlier turns in one line each, for prompts that do not show them; `first` is the number of the first one."""
    lines = [
        f"Turn {number}: {_done(turn, seat, action_sep)}, reward {_number(turn.reward)}"
        for number, turn in enumerate(turns, start=first)
    ]
    return "\n".join(["Earlier turns:", *lines]) if lines else ""


def _done(turn: Turn, seat: Seat, action_sep: str) -> str:
    """What a turn did, in one line."""
    done = f" {action_sep} ".join(turn.executed)
    if seat.is_free_text:
        done = " ".join(shorten(done, LONGEST_SUMMARY).split())
    if turn.tool_result is not None:
        done = f"{done} -> {' '.join(shorten(turn.tool_result, LONGEST_SUMMARY).split())}"
    return done or words_of(seat).unusable


def _number(value: float) -> str:
    """At most three decimals, and never -0."""
    return f"{round(value, 3) + 0.0:g}"
