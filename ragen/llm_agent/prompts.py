"""The words around an observation. What they say is true for the tag that is played."""

from __future__ import annotations

from ragen.config.schema import AgentProxyConfig
from ragen.llm_agent.es_manager import Seat
from ragen.llm_agent.parsing import ANSWER, THINK, parse_reply
from ragen.seeding import Rng
from ragen.types import Turn

ASSISTANT = "You are a helpful assistant."
INVALID_NOTE = "Your last answer had no usable action."
FORMATS = {
    True: "<think>your thoughts</think><answer>your actions</answer>",
    False: "<answer>your actions</answer>",
}
"""enable_think -> the required form of a reply."""
LONGEST_EXAMPLE = 3
"""Most actions of the example answer."""


def system_message(seat: Seat, agent: AgentProxyConfig) -> str:
    """The task, the symbols, the actions and the budget."""
    names = ", ".join(seat.actions.values())
    budget = seat.spec.max_actions_per_traj
    if budget == 1:
        limits = "You have 1 action."
    elif agent.max_actions_per_turn == 1:
        limits = f"You have {budget} actions, one per answer."
    else:
        most = agent.max_actions_per_turn
        limits = f"You have {budget} actions, at most {most} per answer, separated by {agent.action_sep}."
    lines = [ASSISTANT, seat.spec.env_instruction.strip(), seat.notes.strip(), f"Actions: {names}. {limits}"]
    return "\n".join(line for line in lines if line)


def reply_form(seat: Seat, agent: AgentProxyConfig) -> str:
    """The required form of a reply, and one finished example of it where the configuration shows one.

    With the actions Right and Down drawn for the level: "<answer>your actions</answer>, for example
    <answer>Right || Down</answer>,".
    """
    form = FORMATS[agent.enable_think]
    actions = example_actions(seat, agent) if agent.example_answer else []
    if not actions:
        return form
    thought = "...".join(THINK) if agent.enable_think else ""
    return f"{form}, for example {thought}{f' {agent.action_sep} '.join(actions).join(ANSWER)},"


def example_actions(seat: Seat, agent: AgentProxyConfig) -> list[str]:
    """Actions of the level, drawn from its seed: the same for its whole group, and no hint at its solution.

    Two or three where an answer may hold as many, so that the separator is seen; none where no name can be answered
    with, because it holds the separator or a tag.
    """
    usable = [name.strip() for name in seat.actions.values() if _can_be_answered(name.strip(), agent.action_sep)]
    if not usable:
        return []
    rng = Rng(seat.seed, "example")
    most = min(agent.max_actions_per_turn, LONGEST_EXAMPLE, seat.spec.max_actions_per_traj)
    num_actions = 1 if most == 1 else 2 + rng.below(most - 1)
    return [rng.choice(usable) for _ in range(num_actions)]


def _can_be_answered(name: str, action_sep: str) -> bool:
    read = parse_reply(name.join(ANSWER), enable_think=False, action_sep=action_sep, max_actions=2)
    return read.actions == [name]


def user_message(seat: Seat, turns: list[Turn], agent: AgentProxyConfig) -> str:
    """What the agent is told before its next reply: the last reward, the state, the actions left, the form."""
    lines = []
    if turns:
        lines.append(f"Reward: {_number(turns[-1].reward)}")
        if not turns[-1].executed:
            lines.append(INVALID_NOTE)
    lines += [
        f"Turn {len(turns) + 1}",
        "State:",
        seat.observation,
        f"Actions left: {seat.num_actions_left}. Reply with {reply_form(seat, agent)} "
        f"in at most {seat.spec.max_tokens} tokens.",
    ]
    return "\n".join(lines)


def summary(turns: list[Turn], *, first: int, action_sep: str) -> str:
    """Earlier turns in one line each, for prompts that do not show them; `first` is the number of the first one."""
    lines = [
        f"Turn {number}: {f' {action_sep} '.join(turn.executed) or 'no usable action'}, reward {_number(turn.reward)}"
        for number, turn in enumerate(turns, start=first)
    ]
    return "\n".join(["Earlier turns:", *lines]) if lines else ""


def _number(value: float) -> str:
    """At most three decimals, and never -0."""
    return f"{round(value, 3) + 0.0:g}"
