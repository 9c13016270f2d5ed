"""The protocol between the agent and whatever writes its replies.

Tested in tests/engine/test_sessions.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragen.errors import EngineError
from ragen.types import Metrics

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingParams:
    """How the next tokens are drawn."""

    max_tokens: int
    """Most tokens of one reply."""
    temperature: float = 1.0
    """Divides the logits; 0 means greedy."""
    top_p: float = 1.0
    """Nucleus: the smallest set of tokens with at least this probability; 1 keeps all."""
    top_k: int = -1
    """Only the k likeliest tokens; -1 keeps all."""
    stop_token_ids: tuple[int, ...] = ()
    """A reply ends with the first of these; it is part of the reply."""
    stop_strings: tuple[str, ...] = ()
    """A reply ends with the token that completes one of these; it is part of the reply."""

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0


class StopReason(StrEnum):
    """Why a reply ended."""

    STOP_TOKEN = "stop_token"
    STOP_STRING = "stop_string"
    LENGTH = "length"
    ERROR = "error"
    """The engine gave up on this request; `Completion.error` says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One reply to be written."""

    session: int
    """Names the conversation, so that an engine can keep its cache; one open request per session."""
    prompt_ids: Sequence[int]
    """The whole context as token ids. An engine reuses whatever prefix of it the session has cached."""
    messages: Sequence[dict[str, str]] = ()
    """The same context as chat messages, for engines that speak text."""
    params: SamplingParams
    seed: int
    """64-bit key of the sampling noise of this reply; token i of the reply uses (seed, i)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """One finished reply."""

    session: int
    token_ids: list[int] = field(default_factory=list)
    """Exactly as sampled; empty for engines that speak text."""
    logprobs: list[float] = field(default_factory=list)
    """log softmax(logits / temperature) of each token, before top-p and top-k truncate it."""
    entropies: list[float] = field(default_factory=list)
    """Entropy of that distribution where each token was drawn, in nats; empty where the engine does not know it."""
    text: str | None = None
    """The reply as text, for engines that speak text; None where token ids are the reply."""
    stop_reason: StopReason
    error: str = ""


@dataclass(slots=True)
class Reply:
    """A reply being written; its lists are those of the completion it will be."""

    request: Request
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)

    def completion(self, stop_reason: StopReason, error: str = "") -> Completion:
        return Completion(
            session=self.request.session,
            token_ids=self.token_ids,
            logprobs=self.logprobs,
            entropies=self.entropies,
            stop_reason=stop_reason,
            error=error,
        )


Weights = Callable[[], Mapping[str, "Tensor"]]
"""Gives the trained weights, named as in the model folder."""
Score = Callable[[Sequence[int]], "Tensor"]
"""The trained model's log-prob of every token of a text but the first."""

Total = Callable[[Mapping[str, float]], dict[str, float]]
"""The sum of each number over the processes that train together."""


class Engine:
    """Writes replies for many sessions at once. In training it is told what happens to the weights it plays with."""

    note: str = ""
    """What it does slower than it might, for the log."""
    has_drafts: bool = False
    """It was asked to guess tokens ahead, and can (rollout.drafts)."""

    def submit(self, request: Request) -> None:
        """Queue a request; cheap."""
        raise NotImplementedError

    def step(self) -> list[Completion]:
        """Advance every open request and return those that finished; blocks until some progress was made."""
        raise NotImplementedError

    def written(self, session: int) -> Sequence[int]:
        """The open reply of a session as far as it has come; empty for engines that return whole replies only."""
        return ()

    def release(self, session: int) -> None:
        """The session is over: its cache may go."""

    def end_rollout(self) -> None:
        """All episodes are over and the weights are about to change: nothing cached may be used again."""

    def load_weights(self, weights: Weights, score: Score) -> Metrics:
        """The trained weights changed: an engine with a copy of its own takes them over."""
        return {}

    def metrics(self, total: Total = dict) -> Metrics:
        """What was counted in the last rollout that ended, for the log. `total` sums numbers over the processes that
        train together, which all call this."""
        return {}

    def follow(self) -> bool:
        """Take part in a rollout that another process leads; False where this process plays itself."""
        return False

    def close(self) -> None:
        """Give everything back."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSource:
    """The model an engine is built to play with."""

    path: Path | str
    """Its folder; for engines that answer in text, its name."""
    tokenizer: Any = None
    policy: Any = None
    """The trained model in this process; None where the engine plays with the weights of the folder."""
    device: str | None = None
    """Where the folder's weights go; None picks one."""
    max_num_seqs: int = 256
    """Most episodes decoded at once."""
    joins_group: bool = False
    """This is one of the processes of a process group, which all build an engine at the same time."""


def check_request(request: Request, *, max_model_len: int, is_open: bool) -> None:
    """Refuse a reply that may not fit into the context, and a second one in a session whose reply `is_open`."""
    num_prompt, max_tokens = len(request.prompt_ids), request.params.max_tokens
    if num_prompt + max_tokens > max_model_len:
        raise EngineError(
            f"prompt ({num_prompt}) + max_tokens ({max_tokens}) exceed max_model_len={max_model_len}. "
            "Raise actor_rollout_ref.rollout.max_model_len."
        )
    if is_open:
        raise EngineError(f"session {request.session} already has an open request")
