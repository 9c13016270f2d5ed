"""What policies earn on the same levels, and whether saying nothing pays: the arithmetic of the preflight.

Trying at success p earns p * solved + (1 - p) * failed, with the mean totals of solved and of failed episodes. Silence
earns more below the break-even p = (silent - failed) / (solved - failed): in Sokoban with ten moves
(-.5 - -1) / (10.5 - -1) = .043.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import floor
from statistics import fmean
from typing import Any

from ragen.config.schema import AgentProxyConfig
from ragen.types import Episode, Status

SILENT, RANDOM, SOLVER, MODEL = "silent", "random", "solver", "model"
FORMLESS = 0.5
"""Below this share of valid turns a model's replies fail by their form first."""
EQUAL = 1e-9
"""Means that differ by less are the same."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Earning:
    """What one policy earns in one environment."""

    episodes: int
    success: float
    total: float
    """Mean reward of an episode, with penalties."""
    turns: float
    """Mean turns of an episode."""
    valid: float
    """Share of turns whose reply was valid."""
    faults: int = 0
    """Further episodes, which were lost to faults and are no part of the means."""

    @property
    def is_known(self) -> bool:
        """Most episodes were played to their end: the means stand for the policy."""
        return self.episodes > self.faults


def earning_of(episodes: Sequence[Episode]) -> Earning | None:
    """The means of a policy; None where all its episodes were lost to faults."""
    valid = [episode for episode in episodes if not episode.status.is_fault]
    if not valid:
        return None
    turns = [turn for episode in valid for turn in episode.turns]
    return Earning(
        episodes=len(valid),
        success=fmean(episode.is_success for episode in valid),
        total=fmean(episode.score for episode in valid),
        turns=fmean(len(episode.turns) for episode in valid),
        valid=1 - fmean(turn.is_invalid for turn in turns) if turns else 0.0,
        faults=len(episodes) - len(valid),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class TagEarnings:
    """What the policies earn in one environment, and what follows from it."""

    tag: str
    policies: Mapping[str, Earning]
    """Policy -> what it earns, in the order of the table."""
    solved: float | None
    """Mean total of solved episodes of the random policy and the solver; None without any."""
    failed: float | None
    """Mean total of their failed ones."""
    cut: Mapping[Status, int] = field(default_factory=dict)
    """How many episodes of the solver the budgets of turns and actions ended, by status."""

    @property
    def break_even(self) -> float | None:
        """The success below which silence earns more than trying; zero or less where it never does."""
        silent = self.policies.get(SILENT)
        if silent is None or self.solved is None or self.failed is None or self.solved <= self.failed:
            return None
        return (silent.total - self.failed) / (self.solved - self.failed)

    @property
    def compared(self) -> str:
        """With whom silence is compared: the model, or the random policy where no model is known; else empty."""
        return next((name for name in (MODEL, RANDOM) if name in self.policies and self.policies[name].is_known), "")

    @property
    def silence_pays(self) -> bool:
        """Silence earns at least as much as the policy that it is compared with.

        A model below the break-even counts as well: its replies need only become valid for it to earn less. A model
        whose replies lack the form does not show what trying earns: then the failed tries of the others must.
        """
        silent, other = self.policies.get(SILENT), self.policies.get(self.compared)
        if silent is None or other is None or not silent.is_known:
            return False
        if other.success < (self.break_even or 0.0):
            return True
        if other.valid < FORMLESS and (self.failed is None or self.failed > silent.total - EQUAL):
            return False
        return silent.total > other.total - EQUAL

    def to_json(self) -> dict[str, Any]:
        return {
            "policies": {name: asdict(earning) for name, earning in self.policies.items()},
            "solved_total": self.solved,
            "failed_total": self.failed,
            "break_even": self.break_even,
            "silence_pays": self.silence_pays,
        }


BUDGETS = {Status.OUT_OF_TURNS: "turns", Status.OUT_OF_ACTIONS: "actions"}
"""How an episode ends that was given too few of something."""


def compare(tag: str, played: Mapping[str, Sequence[Episode]]) -> TagEarnings:
    """The earnings of every policy on the episodes that it played of a tag."""
    members = {name: [episode for episode in episodes if episode.tag == tag] for name, episodes in played.items()}
    found = {name: earning for name, episodes in members.items() if (earning := earning_of(episodes))}
    tries = [e for name in (RANDOM, SOLVER) for e in members.get(name, ()) if not e.status.is_fault]
    solved = [episode.score for episode in tries if episode.is_success]
    failed = [episode.score for episode in tries if not episode.is_success]
    return TagEarnings(
        tag=tag,
        policies=found,
        solved=fmean(solved) if solved else None,
        failed=fmean(failed) if failed else None,
        cut={status: n for status in BUDGETS if (n := sum(e.status is status for e in members.get(SOLVER, ())))},
    )


# --- in words -------------------------------------------------------------------------------------------------------


def table(each: TagEarnings) -> str:
    """A row for every policy."""
    head = f"  {'policy':<8}{'success':>9}{'total reward':>14}{'valid turns':>13}{'episodes':>10}"
    lines = [f"What pays in {each.tag}:", head]
    for name, found in each.policies.items():
        lines.append(f"  {name:<8}{found.success:>9.3f}{found.total:>14.2f}{found.valid:>13.2f}{found.episodes:>10}")
    for name, found in each.policies.items():
        if found.faults:
            total = found.episodes + found.faults
            lines.append(f"{name}: {found.faults} of {total} episodes were lost to faults and are not counted.")
    return "\n".join(lines)


def break_even_line(each: TagEarnings) -> str:
    """From which success on trying pays; empty where the episodes do not say."""
    silent, point = each.policies.get(SILENT), each.break_even
    if each.solved is not None and each.failed is not None and each.solved <= each.failed:
        return f"A solved level earns {each.solved:.2f}, a failed one {each.failed:.2f}: success does not pay."
    if silent is None or point is None:
        return ""
    if point <= 0:
        return f"A failed try earns {each.failed:z.2f}, silence {silent.total:.2f}: silence never pays."
    if point >= 1:
        return f"Even a solved level earns only {each.solved:.2f}, silence {silent.total:.2f}: trying never pays."
    return (
        f"Trying earns {each.failed:.2f} when it fails and {each.solved:.2f} when it succeeds, silence "
        f"{silent.total:.2f}: trying pays from a success of {point:.3f} on."
    )


def warning(each: TagEarnings, agent: AgentProxyConfig, *, format_penalty: float) -> str:
    """A paragraph where silence pays, with the numbers and the remedies; else empty."""
    if not each.silence_pays:
        return ""
    silent, name = each.policies[SILENT], each.compared
    other, point = each.policies[name], each.break_even
    is_above = point is not None and 0 < point <= other.success
    who = "the model" if name == MODEL else "the random policy"
    penalty = f"es_manager.format_penalty (now {format_penalty:g}"
    if each.failed is not None and silent.turns and each.failed / silent.turns < format_penalty:
        enough = floor(round(100 * each.failed / silent.turns, 6)) / 100
        penalty += f"; from {enough:g} down, silence earns no more than a failed try"
    keys = ["agent_proxy.example_answer=True"] if not agent.example_answer else []
    keys += ["agent_proxy.answer_parsing=lenient"] if agent.answer_parsing == "strict" else []
    is_formless = name == MODEL and other.valid < FORMLESS and bool(keys)
    form = f"a form that is easier to meet ({', '.join(keys)}), " if is_formless else ""
    sentences = [
        f"warning: silence pays in {each.tag}.",
        f"An agent that gives invalid replies only earns {silent.total:.2f}, {who} {other.total:.2f} at a success of "
        f"{other.success:.3f}.",
        # Where the policy is not below it, the other tries that it is made of would contradict the rest.
        break_even_line(each) if point is None or other.success < point else "",
        "A policy that rarely succeeds learns to say nothing." if not is_above else "",
        f"Remedies: {form}{penalty}), a supervised warm-up (`ragen sft`), easier levels, fewer actions per turn "
        f"(agent_proxy.max_actions_per_turn, now {agent.max_actions_per_turn}).",
    ]
    return " ".join(filter(None, sentences))


def budget_warning(each: TagEarnings, agent: AgentProxyConfig, *, max_actions: int) -> str:
    """A paragraph where the budgets end most episodes of the solver, with the keys to raise; else empty."""
    solver, num_cut = each.policies.get(SOLVER), sum(each.cut.values())
    if solver is None or 2 * num_cut < solver.episodes:
        return ""
    ends = " and ".join(f"{count} out of {BUDGETS[status]}" for status, count in each.cut.items())
    keys = []
    if Status.OUT_OF_TURNS in each.cut:
        keys += [f"agent_proxy.max_turn (now {agent.max_turn})"]
        keys += [f"agent_proxy.max_actions_per_turn (now {agent.max_actions_per_turn}; free text counts as one action)"]
    if Status.OUT_OF_ACTIONS in each.cut:
        keys += [f"custom_envs.{each.tag}.max_actions_per_traj (now {max_actions})"]
    return (
        f"warning: the budgets of {each.tag} are too small for its solver: of {solver.episodes} episodes "
        f"{round(solver.success * solver.episodes)} are solved, {ends}. Raise {' or '.join(keys)}, or choose easier "
        "levels."
    )
