"""Pages of the key-value cache: who holds which, and memory that grows by segments."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ragen.errors import EngineError

SEGMENT_BYTES = 256 * 2**20


class PagePool:
    """Pages of a fixed size, named by their address in memory. Several sessions may hold the same page.

    Memory comes in segments when pages run out, so nothing is ever copied to make room.
    """

    def __init__(self, page_bytes: int, device: torch.device) -> None:
        self.page_bytes, self.device = page_bytes, device
        self._segments: list[Tensor] = []
        self._free: list[int] = []
        self._holders: dict[int, int] = {}

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_held(self) -> int:
        return len(self._holders)

    @property
    def num_bytes(self) -> int:
        return sum(segment.numel() for segment in self._segments)

    def take(self, count: int) -> list[int]:
        """Pages nobody else holds; what is in them is arbitrary."""
        while len(self._free) < count:
            self._grow(count - len(self._free))
        pages = [self._free.pop() for _ in range(count)]
        self._holders |= dict.fromkeys(pages, 1)
        return pages

    def _grow(self, count: int) -> None:
        num_pages = max(count, SEGMENT_BYTES // self.page_bytes, 1)
        try:
            segment = torch.empty(num_pages * self.page_bytes, dtype=torch.uint8, device=self.device)
        except torch.OutOfMemoryError as error:
            raise EngineError(
                f"The key-value cache holds {self.num_bytes / 2**30:.1f} GiB and finds no memory for more. Lower "
                "actor_rollout_ref.rollout.max_num_seqs or actor_rollout_ref.rollout.max_model_len."
            ) from error
        self._segments.append(segment)
        # In descending order: pages are taken from the end.
        self._free += [segment.data_ptr() + i * self.page_bytes for i in reversed(range(num_pages))]

    def share(self, pages: Sequence[int]) -> None:
        """One more holder for each."""
        for page in pages:
            self._holders[page] += 1

    def drop(self, pages: Sequence[int]) -> None:
        """One holder less for each; pages without holders are free."""
        for page in pages:
            self._holders[page] -= 1
            if not self._holders[page]:
                del self._holders[page]
                self._free.append(page)

    def is_shared(self, page: int) -> bool:
        return self._holders[page] > 1

    def clear(self, *, free_memory: bool) -> None:
        """Nobody holds anything any more."""
        if free_memory:
            self._segments.clear()
            self._free.clear()
        else:
            self._free += self._holders
        self._holders.clear()
