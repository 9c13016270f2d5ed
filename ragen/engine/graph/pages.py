"""Pages of the key-value cache: memory that grows by segments, and which session holds which pages."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ragen.engine.sessions import Group, Session
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


class PageTables:
    """The pages of each slot, in the order of the tokens in them."""

    def __init__(self, pool: PagePool, *, page_tokens: int) -> None:
        self.pool, self.page_tokens = pool, page_tokens
        self._pages: dict[int, list[int]] = {}

    def __getitem__(self, slot: int) -> list[int]:
        return self._pages[slot]

    def _num_pages(self, num_tokens: int) -> int:
        return -(-num_tokens // self.page_tokens)

    def _num_needed(self, session: Session) -> int:
        """Pages for the prompt and the longest reply."""
        return self._num_pages(len(session.request.prompt_ids) + session.request.params.max_tokens)

    def reserve(self, session: Session) -> list[tuple[int, int]]:
        """Give a session pages for its prompt and its longest reply; returns the pages to copy first, (from, to).

        Pages it shares with others stay shared where it only reads them.
        """
        pages = self._pages.setdefault(session.slot, [])
        num_full, tail = divmod(len(session.cached), self.page_tokens)
        copies = []
        if tail and self.pool.is_shared(pages[num_full]):
            (own,) = self.pool.take(1)
            copies.append((pages[num_full], own))
            self.pool.drop([pages[num_full]])
            pages[num_full] = own
        num_kept = num_full + bool(tail)
        while len(pages) > num_kept:
            self.pool.drop([pages.pop()])
        pages += self.pool.take(self._num_needed(session) - len(pages))
        return copies

    def share(self, group: Group) -> None:
        """Followers read the leader's full prompt pages; the last, begun one they have for themselves."""
        num_full = len(group.leader.request.prompt_ids) // self.page_tokens
        full = self._pages[group.leader.slot][:num_full]
        for follower in group.followers:
            self.pool.share(full)
            self._pages[follower.slot] = full + self.pool.take(self._num_needed(follower) - num_full)

    def begun_copies(self, group: Group) -> list[tuple[int, int]]:
        """Copies of the leader's begun prompt page to its followers', (from, to)."""
        begun, tail = divmod(len(group.leader.request.prompt_ids), self.page_tokens)
        source = self._pages[group.leader.slot]
        return [(source[begun], self._pages[follower.slot][begun]) for follower in group.followers] if tail else []

    def trim(self, session: Session) -> None:
        """Keep the pages of what is cached."""
        pages, num_kept = self._pages[session.slot], self._num_pages(len(session.cached))
        self.pool.drop(pages[num_kept:])
        del pages[num_kept:]

    def drop(self, session: Session) -> None:
        self.pool.drop(self._pages.pop(session.slot, ()))

    def clear(self, *, free_memory: bool) -> None:
        self._pages.clear()
        self.pool.clear(free_memory=free_memory)
