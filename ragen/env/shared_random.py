"""Environments of others that draw from the random generators which Python and NumPy share among everybody."""

from __future__ import annotations

import random
from threading import Lock
from typing import Any

import numpy as np

_TURN = Lock()
"""Held while a foreign environment draws: another thread would draw from the same generators."""


class OwnRandom:
    """Within `with own_random:` the shared generators are this episode's; outside they are as they were.

    Two episodes that take turns draw what each would have drawn alone.
    """

    def __init__(self, seed: int) -> None:
        self.state: tuple[Any, Any] = random.Random(seed).getstate(), np.random.RandomState(seed % 2**32).get_state()

    def __enter__(self) -> None:
        _TURN.acquire()
        self.others = self._exchange(self.state)

    def __exit__(self, *_: object) -> None:
        self.state = self._exchange(self.others)
        _TURN.release()

    @staticmethod
    def _exchange(state: tuple[Any, Any]) -> tuple[Any, Any]:
        before = random.getstate(), np.random.get_state()
        random.setstate(state[0])
        np.random.set_state(state[1])
        return before
