"""An engine in several processes, each with a part of the model: one of them plays, the others do the same steps.

The processes must hold equal engines that write equal replies to equal requests; then what is submitted and released
between two steps is all that the others have to hear.
"""

from __future__ import annotations

from collections.abc import Callable

from ragen.engine.base import Completion, Engine, Request

Orders = list[Request | int]
"""Requests to submit and sessions to release, before the next step."""


class LeadingEngine:
    """The engine in the process that plays. `send` reaches all others; None ends their part in a rollout."""

    def __init__(self, engine: Engine, send: Callable[[Orders | None], object]) -> None:
        self.engine, self._send = engine, send
        self._orders: Orders = []

    def submit(self, request: Request) -> None:
        self.engine.submit(request)
        self._orders.append(request)

    def step(self) -> list[Completion]:
        self._send(self._orders)
        self._orders = []
        return self.engine.step()

    def release(self, session: int) -> None:
        self.engine.release(session)
        self._orders.append(session)

    def sync(self) -> None:
        self._send(None)
        self._orders = []
        self.engine.sync()

    def close(self) -> None:
        self.engine.close()


def follow(engine: Engine, receive: Callable[[], Orders | None]) -> None:
    """Take part in one rollout of the process that plays, until it syncs its engine."""
    while (orders := receive()) is not None:
        for order in orders:
            if isinstance(order, Request):
                engine.submit(order)
            else:
                engine.release(order)
        engine.step()
    engine.sync()
