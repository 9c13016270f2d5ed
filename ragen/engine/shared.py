"""An engine in several processes, each with a shard of the model: one of them plays, the others do the same steps.

The processes must hold equal engines that write equal replies to equal requests; then what is submitted and released
between two steps is all that the others have to be told.
"""

from __future__ import annotations

from collections.abc import Callable

from ragen.engine.base import Completion, Engine, Request, Score, Total, Weights
from ragen.types import Metrics

Orders = list[Request | int]
"""Requests to submit and sessions to release, before the next step."""


class SharedEngine(Engine):
    """One process's part of the engine. The leader is used as any other engine; the others call `follow` meanwhile."""

    def __init__(self, engine: Engine, broadcast: Callable[[Orders | None], Orders | None], *, is_leader: bool) -> None:
        """`broadcast` is called by all at the same time and returns what the leader gave; None ends a rollout."""
        self.engine, self.is_leader, self.note = engine, is_leader, engine.note
        self._broadcast = broadcast
        self._orders: Orders = []

    def submit(self, request: Request) -> None:
        self.engine.submit(request)
        self._orders.append(request)

    def step(self) -> list[Completion]:
        self._broadcast(self._orders)
        self._orders = []
        return self.engine.step()

    def release(self, session: int) -> None:
        self.engine.release(session)
        self._orders.append(session)

    def end_rollout(self) -> None:
        self._broadcast(None)
        self._orders = []
        self.engine.end_rollout()

    def follow(self) -> bool:
        if self.is_leader:
            return False
        while (orders := self._broadcast(None)) is not None:
            for order in orders:
                if isinstance(order, Request):
                    self.engine.submit(order)
                else:
                    self.engine.release(order)
            self.engine.step()
        self.engine.end_rollout()
        return True

    def load_weights(self, weights: Weights, score: Score) -> Metrics:
        return self.engine.load_weights(weights, score)

    def metrics(self, total: Total = dict) -> Metrics:
        return self.engine.metrics(total)

    def close(self) -> None:
        self.engine.close()
