"""The words around an observation. What they say is true for the tag that is played."""

from __future__ import annotations

from ragen.llm_agent.es_manager import Seat
from ragen.types import Turn

ASSISTANT = "You are a helpful assistant."
INVALID_NOTE = "Your last answer had no usable action."
FORMATS = {
    True: "<think>your thoughts</think><answer>your actions</answer>",
    False: "<answer>your actions</answer>",
}
"""enable_think -> the required form of a reply."""


def system_message(seat: Seat, *, action_sep: str, max_actions_per_turn: int) -> str:
    """The task, the symbols, the actions and the budget."""
    names = ", ".join(seat.actions.values())
    budget = seat.spec.max_actions_per_traj
    if budget == 1:
        limits = "You have 1 action."
    elif max_actions_per_turn == 1:
        limits = f"You have {budget} actions, one per answer."
    else:
        limits = f"You have {budget} actions, at most {max_actions_per_turn} per answer, separated by {action_sep}."
    lines = [ASSISTANT, seat.spec.env_instruction.strip(), seat.notes.strip(), f"Actions: {names}. {limits}"]
    return "\n".join(line for line in lines if line)


def user_message(seat: Seat, turns: list[Turn], *, enable_think: bool) -> str:
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
        f"Actions left: {seat.num_actions_left}. Reply with {FORMATS[enable_think]} "
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
