"""The records that cross module borders: turns, episodes, groups and training samples.

Episodes are plain data (lists, numbers, strings). They are what a rollout returns, what the filter reads, what
is written to disk as JSON lines and what `ragen show` prints.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

Message = dict[str, str]
"""A chat message: role and content."""

Metrics = dict[str, float]
"""Metric path -> number."""


class Status(StrEnum):
    """How an episode ended, or that it has not."""

    ONGOING = "ongoing"
    SOLVED = "solved"
    FAILED = "failed"
    """The environment ended the episode without success."""
    TRUNCATED = "truncated"
    """A limit of the environment's own ended the episode, without success."""
    OUT_OF_TURNS = "out_of_turns"
    OUT_OF_ACTIONS = "out_of_actions"
    CONTEXT_FULL = "context_full"
    """The next prompt and a full answer no longer fitted into max_model_len."""
    ENV_ERROR = "env_error"
    """The environment raised, or returned what no environment may; `Episode.error` says what."""
    ENV_TIMEOUT = "env_timeout"
    """The environment did not return within the tag's step_timeout."""
    ENGINE_ERROR = "engine_error"
    """The engine gave up on a reply; `Episode.error` says why."""

    @property
    def is_fault(self) -> bool:
        """The machinery failed, not the agent: the episode says nothing about the policy."""
        return self in (Status.ENV_ERROR, Status.ENV_TIMEOUT, Status.ENGINE_ERROR)


@dataclass(kw_only=True, slots=True)
class Turn:
    """One exchange: what the agent saw, said and received."""

    user: str
    """The message that asked for this reply."""
    role: str = "user"
    """Who spoke it: `user`, or `tool` where it is the result of a call."""
    observation: str = ""
    """The state in which the reply was given."""
    prompt_ids: list[int]
    """[num_prompt_tokens] In `full` context mode what was appended since the last reply, else the whole prompt."""
    response_ids: list[int]
    """[num_response_tokens] Exactly as sampled."""
    logprobs: list[float]
    """[num_response_tokens] From the engine, at the sampling temperature, before any top-p or top-k cut."""
    entropies: list[float] = field(default_factory=list)
    """[num_response_tokens] Of the same distributions, in nats, to four decimals; empty where they are not known."""
    advantages: list[float] = field(default_factory=list)
    """What training gave the sampled tokens, to four decimals: one number that all of them share, or one for each;
    empty where the reply was not trained on."""
    text: str
    """The reply as text, with the forced prefix."""
    stop_reason: str
    thought: str = ""
    """What stood between the think tags."""
    actions: list[str] = field(default_factory=list)
    """Parsed action names, known or not, at most max_actions_per_turn; in a free-text environment the answer."""
    executed: list[str] = field(default_factory=list)
    """The actions the environment received."""
    is_parsed: bool = True
    """The reply had the required form."""
    is_lenient_valid: bool = True
    """Lenient parsing accepts the reply, whether or not it is in use: it then finds known actions and no others."""
    num_dropped_actions: int = 0
    """Known actions that were not executed: beyond the turn's cap, the episode's budget or the end."""
    num_dropped_turns: int = 0
    """Earlier turns cut from this prompt to fit it into the context."""
    reward: float = 0.0
    """Sum of the environment's rewards for the actions of this turn.

    A reward function (es_manager.reward_function) changes that of the last turn; its info then has `reward_change`."""
    penalty: float = 0.0
    """Format penalty of this turn, zero or negative."""
    info: dict[str, float] = field(default_factory=dict)
    """Numbers the environment reported, last action wins."""
    tool_result: str | None = None
    """What the tool returned that this reply called, or why it did not; None where it called none."""
    tool_problem: str = ""
    """Why the call brought no result, one of `ragen.env.tools.PROBLEMS`."""

    @property
    def is_invalid(self) -> bool:
        """The reply named an unknown action or none, or no text of use, which the format penalty is for.

        False where a fault cut it.
        """
        return bool(self.info.get("manager_invalid_action"))

    @property
    def has_entropies(self) -> bool:
        """The entropy behind every token is known."""
        return len(self.entropies) == len(self.response_ids)


def conversation(system: str, turns: Iterable[Turn]) -> list[Message]:
    """A system message and the exchanges of turns, in chat form."""
    messages = [{"role": "system", "content": system}]
    for turn in turns:
        messages += [{"role": turn.role, "content": turn.user}, {"role": "assistant", "content": turn.text}]
    return messages


@dataclass(kw_only=True, slots=True)
class Episode:
    """One play of one level."""

    tag: str
    env_type: str
    group_id: int
    member: int
    seed: int
    """Fixes the level; members of a group share it."""
    level: str = ""
    """The level by its content: equal on every seed that makes the same level. Empty where `reset` failed."""
    system: str = ""
    """The system message."""
    turns: list[Turn] = field(default_factory=list)
    status: Status = Status.ONGOING
    error: str = ""
    final_observation: str = ""
    """The state after the last action."""

    @property
    def is_success(self) -> bool:
        return self.status is Status.SOLVED

    @property
    def reward(self) -> float:
        """Sum of the environment's rewards."""
        return sum(turn.reward for turn in self.turns)

    @property
    def penalty(self) -> float:
        return sum(turn.penalty for turn in self.turns)

    @property
    def score(self) -> float:
        """What training maximises: environment rewards and format penalties."""
        return self.reward + self.penalty

    @property
    def num_actions(self) -> int:
        return sum(len(turn.executed) for turn in self.turns)

    def messages(self) -> list[Message]:
        """The conversation in chat form."""
        return conversation(self.system, self.turns)


@dataclass(kw_only=True, slots=True)
class Group:
    """The episodes that share a level; kept or dropped as a whole."""

    group_id: int
    episodes: list[Episode]

    @property
    def is_complete(self) -> bool:
        """Every member gave a reply and none was lost to a fault; only complete groups are trained on."""
        return all(episode.turns and not episode.status.is_fault for episode in self.episodes)


def group_episodes(episodes: Iterable[Episode]) -> list[Group]:
    """Episodes by group id, in order of first appearance."""
    groups: dict[int, list[Episode]] = {}
    for episode in episodes:
        groups.setdefault(episode.group_id, []).append(episode)
    return [Group(group_id=group_id, episodes=members) for group_id, members in groups.items()]


@dataclass(kw_only=True, slots=True)
class Sample:
    """One training sequence: an episode in `full` context mode, one turn in the limited modes."""

    group_id: int
    member: int
    input_ids: list[int]
    """[seq] Prompts and replies, concatenated as the engine saw and wrote them."""
    loss_mask: list[int]
    """[seq] 1 exactly on sampled tokens."""
    logprobs: list[float]
    """[seq] The engine's log-prob of each sampled token, 0.0 elsewhere."""
    entropies: list[float] = field(default_factory=list)
    """[seq] The engine's entropy where each sampled token was drawn, 0.0 elsewhere; empty where it is not known."""
    turn_spans: list[tuple[int, int]]
    """[turns] Start and end (exclusive) of each reply in input_ids."""
    turn_scores: list[float]
    """[turns] What the end of each reply earns; their sum is the score of the sample."""
    turn_states: list[str] = field(default_factory=list)
    """[turns] The state in which each reply was given."""
    turn_rewards: list[float] = field(default_factory=list)
    """[turns] Reward and penalty of each turn itself."""
    turn_is_invalid: list[bool] = field(default_factory=list)
    """[turns] Whether each reply named an unknown action or none."""
