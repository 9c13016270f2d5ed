"""An engine whose replies are written by a function: for tests and worked examples."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from ragen.engine.base import Completion, Engine, Request, StopReason


class Encoder(Protocol):
    """The one thing asked of a tokenizer."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...


class ScriptedEngine(Engine):
    """Answers every request with `reply(request)`: a text, or token ids exactly as they would be sampled.

    With a tokenizer a text becomes token ids, closed by the first stop token of the request; without one it is
    handed on as text. Every log-prob is 0.
    """

    def __init__(
        self,
        reply: Callable[[Request], str | list[int]],
        tokenizer: Encoder | None = None,
        *,
        per_step: int | None = None,
    ) -> None:
        self.reply = reply
        self.tokenizer = tokenizer
        self.per_step = per_step
        """How many requests one step finishes, oldest first; None finishes all."""
        self.pending: deque[Request] = deque()

    def submit(self, request: Request) -> None:
        self.pending.append(request)

    def step(self) -> list[Completion]:
        num_finished = min(self.per_step or len(self.pending), len(self.pending))
        return [self.complete(self.pending.popleft()) for _ in range(num_finished)]

    def complete(self, request: Request) -> Completion:
        reply, params = self.reply(request), request.params
        if isinstance(reply, str):
            if self.tokenizer is None:
                return Completion(session=request.session, text=reply, stop_reason=StopReason.STOP_STRING)
            reply = self.tokenizer.encode(reply, add_special_tokens=False) + list(params.stop_token_ids[:1])
        token_ids = list(reply[: params.max_tokens])
        if len(reply) > params.max_tokens:
            stop_reason = StopReason.LENGTH
        elif token_ids and token_ids[-1] in params.stop_token_ids:
            stop_reason = StopReason.STOP_TOKEN
        else:
            stop_reason = StopReason.STOP_STRING
        return Completion(
            session=request.session, token_ids=token_ids, logprobs=[0.0] * len(token_ids), stop_reason=stop_reason
        )

    def close(self) -> None:
        self.pending.clear()
