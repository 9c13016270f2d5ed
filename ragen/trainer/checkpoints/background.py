"""Work beside the training loop, one piece at a time; what goes wrong in it is raised where the loop asks."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait


class Background:
    """A thread for each piece of work. A process that ends by itself waits for it."""

    def __init__(self) -> None:
        self._work: Future[None] | None = None

    def begin(self, work: Callable[[], None]) -> None:
        assert self._work is None, "wait for the work before"
        pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._work = pool.submit(work)
        pool.shutdown(wait=False)

    def wait(self) -> None:
        """Until the work is done. An error of it is raised, once."""
        if self._work is not None:
            wait([self._work])  # a signal may end this early; the work is then still known
            self.check()

    def check(self) -> None:
        """Raise the error of work that has failed, once; work that is under way is left alone."""
        if self._work is not None and self._work.done():
            work, self._work = self._work, None
            work.result()
