"""Decision processes so small that every episode can be listed, and a policy with one number per choice of a token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from ragen.types import Episode, Status, Turn

Reply = tuple[int, ...]
"""Tokens of a reply."""
FIRST_STATE_TOKEN = 100
"""Ids of the tokens that name a state; below them are the tokens of replies."""
SEPARATOR = 99


class Node(NamedTuple):
    """Where a turn begins."""

    seen: str
    """What the agent sees, and all that the policy and GiGPO know of it."""
    turn: int


class Outcome(NamedTuple):
    """What a reply may lead to."""

    probability: float
    reward: float
    node: Node | None
    """None: the episode is over."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Process:
    """Levels, each as likely as the others, and what every reply leads to."""

    name: str
    levels: tuple[Node, ...]
    nodes: Mapping[Node, Mapping[Reply, Sequence[Outcome]]]

    @cached_property
    def choices(self) -> list[tuple[str, Reply, int]]:
        """Everything the policy chooses: (what it sees, the tokens of the reply so far, the next one)."""
        replies = [(node.seen, reply) for node, found in self.nodes.items() for reply in found]
        return list(dict.fromkeys((seen, reply[:i], reply[i]) for seen, reply in replies for i in range(len(reply))))

    @cached_property
    def seen(self) -> list[str]:
        return list(dict.fromkeys(node.seen for node in self.nodes))

    def prompt(self, seen: str) -> list[int]:
        return [SEPARATOR, FIRST_STATE_TOKEN + self.seen.index(seen)]


@dataclass(frozen=True, kw_only=True, eq=False)
class Trajectory:
    """One of all the episodes of a level."""

    level: int
    turns: tuple[tuple[Node, Reply, float], ...]
    """What was seen, said and earned."""
    chance: float
    """Probability of what the environment did, the choice of the level included."""

    @property
    def reward(self) -> float:
        return sum(reward for _, _, reward in self.turns)


def trajectories(process: Process) -> list[Trajectory]:
    """Every episode that the process allows."""

    def ends(node: Node) -> Iterator[tuple[tuple[tuple[Node, Reply, float], ...], float]]:
        for reply, outcomes in process.nodes[node].items():
            for outcome in outcomes:
                turn = (node, reply, outcome.reward)
                for rest, chance in ends(outcome.node) if outcome.node else [((), 1.0)]:
                    yield (turn, *rest), outcome.probability * chance

    share = 1 / len(process.levels)
    return [
        Trajectory(level=level, turns=turns, chance=share * chance)
        for level, node in enumerate(process.levels)
        for turns, chance in ends(node)
    ]


class Policy:
    """A softmax over the next token for each state and beginning of a reply; one logit per choice."""

    def __init__(self, process: Process, *, seed: int, spread: float = 0.7) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.process, self.index = process, {choice: i for i, choice in enumerate(process.choices)}
        self.logits = spread * torch.randn(len(self.index), generator=generator, dtype=torch.float64)
        contexts = list(dict.fromkeys(choice[:2] for choice in self.index))
        context_of = [contexts.index(choice[:2]) for choice in self.index]
        self.is_alternative = torch.tensor([[a == b for b in context_of] for a in context_of])  # [choices, choices]

    def logprobs(self, logits: Tensor | None = None) -> Tensor:  # [choices]
        """Log-prob of each choice, among those of the same context."""
        logits = self.logits if logits is None else logits
        return logits - logits.expand_as(self.is_alternative).masked_fill(~self.is_alternative, -torch.inf).logsumexp(1)

    def scores(self) -> Tensor:  # [choices, choices]
        """The gradient of the log-prob of each choice by the logits: 1 at itself, less the probabilities beside it."""
        return torch.eye(len(self.index)) - self.is_alternative * self.logprobs().exp()

    def chosen(self, seen: str, reply: Reply) -> list[int]:
        """The choices behind the tokens of a reply."""
        return [self.index[seen, reply[:i], reply[i]] for i in range(len(reply))]

    def chosen_in(self, trajectory: Trajectory) -> list[int]:
        return [choice for node, reply, _ in trajectory.turns for choice in self.chosen(node.seen, reply)]

    def probabilities(self, all_of_them: Sequence[Trajectory], logits: Tensor | None = None) -> Tensor:
        """Of each trajectory, [trajectories]; differentiable by the logits."""
        logprobs = self.logprobs(logits)
        sums = torch.stack([logprobs[self.chosen_in(trajectory)].sum() for trajectory in all_of_them])
        return torch.tensor([trajectory.chance for trajectory in all_of_them], dtype=torch.float64) * sums.exp()


def exact_gradient(policy: Policy, *, reference: Policy | None = None, beta: float = 0.0) -> Tensor:  # [choices]
    """The gradient of the expected reward, less beta times the KL to a reference, from all trajectories.

    It is differentiated as the finite sum it is; no identity of policy gradients is used.
    """
    all_of_them, logits = trajectories(policy.process), policy.logits.clone().requires_grad_()
    value = torch.tensor([trajectory.reward for trajectory in all_of_them], dtype=torch.float64)
    if reference is not None:
        log_ratio = policy.logprobs(logits) - reference.logprobs()
        value = value - beta * torch.stack([log_ratio[policy.chosen_in(each)].sum() for each in all_of_them])
    objective = (policy.probabilities(all_of_them, logits) * value).sum()
    return torch.autograd.grad(objective, logits)[0]


def to_episode(trajectory: Trajectory, policy: Policy, *, group_id: int, member: int) -> Episode:
    """The record that a rollout of this trajectory would have written."""
    logprobs = policy.logprobs().tolist()
    turns = [
        Turn(
            user=node.seen,
            observation=node.seen,
            prompt_ids=policy.process.prompt(node.seen),
            response_ids=list(reply),
            logprobs=[logprobs[choice] for choice in policy.chosen(node.seen, reply)],
            text=str(reply),
            stop_reason="stop",
            reward=reward,
        )
        for node, reply, reward in trajectory.turns
    ]
    return Episode(
        tag=policy.process.name,
        env_type=policy.process.name,
        group_id=group_id,
        member=member,
        seed=trajectory.level,
        turns=turns,
        status=Status.FAILED,
    )


# --- the processes

STAY, MOVE, STOP, PULL, LEFT, RIGHT = range(6)
OTHER = {"A": "B", "B": "A"}


def chain() -> Process:
    """Two states, two turns; the start is the level. Staying in the first turn earns 0.2, ending in B earns 1.

    The first move fails in a quarter of the cases. The first reply has two tokens; the first of them is a thought,
    which changes nothing but what the policy writes next.
    """
    nodes: dict[Node, dict[Reply, list[Outcome]]] = {}
    for state, other in OTHER.items():
        ends = {STAY: [(1.0, state)], MOVE: [(0.75, other), (0.25, state)]}
        nodes[Node(f"{state}, turn 1", 1)] = {
            (thought, action): [Outcome(p, 0.2 * (action == STAY), Node(f"{end}, turn 2", 2)) for p, end in found]
            for thought in (LEFT, RIGHT)
            for action, found in ends.items()
        }
        nodes[Node(f"{state}, turn 2", 2)] = {
            (action,): [Outcome(1.0, float(end == "B"), None)] for action, end in ((STAY, state), (MOVE, other))
        }
    return Process(name="chain", levels=(Node("A, turn 1", 1), Node("B, turn 1", 1)), nodes=nodes)


def stopping_bandit(stop: Reply = (STOP,)) -> Process:
    """Up to three turns: stop with 0.5, in one token, or pull one of two arms, in two, for 0.3 or 0.6 and go on."""
    nodes: dict[Node, dict[Reply, list[Outcome]]] = {}
    for turn in (1, 2, 3):
        after = Node(f"turn {turn + 1}", turn + 1) if turn < 3 else None
        nodes[Node(f"turn {turn}", turn)] = {
            stop: [Outcome(1.0, 0.5, None)],
            (PULL, LEFT): [Outcome(1.0, 0.3, after)],
            (PULL, RIGHT): [Outcome(1.0, 0.6, after)],
        }
    return Process(name="stopping bandit", levels=(Node("turn 1", 1),), nodes=nodes)


def loop() -> Process:
    """Two states, three turns that the agent does not count: states come back. Being in B after a turn earns 0.5."""
    nodes: dict[Node, dict[Reply, list[Outcome]]] = {}
    for turn in (1, 2, 3):
        for state, other in OTHER.items():
            ends = {STAY: state, MOVE: other}
            nodes[Node(state, turn)] = {
                (action,): [Outcome(1.0, 0.5 * (end == "B"), Node(end, turn + 1) if turn < 3 else None)]
                for action, end in ends.items()
            }
    return Process(name="loop", levels=(Node("A", 1), Node("B", 1)), nodes=nodes)


PROCESSES = {"chain": chain, "stopping bandit": stopping_bandit, "loop": loop}
