"""Copies of tensors in the memory of the CPU, taken in one go, so that training may go on while they are written.

Copies of a GPU's tensors are pinned: it fills them at the speed of its bus. Pinning takes seconds, so the buffers are
made once, in a thread, and used again.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import torch
from torch import Tensor

SMALL = 2**20
"""Bytes below which torch pins by itself; it rounds sizes up to powers of two, which costs nothing here."""
PORTABLE = 1
"""cudaHostRegisterPortable: pinned for every context."""


class HostCopies:
    """A buffer for each tensor by its name. A copy is overwritten by the next one of the same name."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.is_pinned = device, device.type == "cuda"
        self.num_unpinned = 0
        """Bytes that the system refused to pin; they are copied more slowly."""
        self._buffers: dict[str, Tensor] = {}
        self._registered: list[Tensor] = []
        self._reserving: Future[None] | None = None

    def reserve(self, like: Mapping[str, Tensor]) -> None:
        """Make the buffers for tensors of these shapes, in a thread; those on the meta device will do."""
        pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint-buffers")
        self._reserving = pool.submit(self._reserve, dict(like))
        pool.shutdown(wait=False)

    def copy(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors as they are now, under the same names. What is one tensor under two names stays one.

        An error, of the reservation or for want of memory, leaves nothing held.
        """
        try:
            if self._reserving is not None:
                self._reserving.result()
            copies = {}
            for name, first, tensor in _with_first_names(tensors):
                if first == name:
                    copies[name] = self._buffer(name, tensor)
                    copies[name].copy_(tensor.detach(), non_blocking=True)
                else:
                    copies[name] = copies[first]
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
        except BaseException:
            self.close()
            raise
        return copies

    def num_missing_bytes(self, like: Mapping[str, Tensor]) -> int:
        """The memory that copies of tensors of these shapes take beyond the buffers that there are."""
        self._settle()
        firsts = [(name, tensor) for name, first, tensor in _with_first_names(like) if name == first]
        return sum(tensor.nbytes for name, tensor in firsts if self._fitting(name, tensor) is None)

    def close(self) -> None:
        """Give the memory back."""
        self._settle()
        self._give_back()

    def _settle(self) -> None:
        """Until nothing is being reserved; whether that succeeded is for `copy` to say, which needs it."""
        if self._reserving is not None:
            wait([self._reserving])

    def _give_back(self) -> None:
        while self._registered:
            _runtime().cudaHostUnregister(self._registered.pop().data_ptr())
        self._buffers.clear()

    def _fitting(self, name: str, like: Tensor) -> Tensor | None:
        """The buffer of that name, if it takes such a tensor."""
        found = self._buffers.get(name)
        return found if found is not None and (found.shape, found.dtype) == (like.shape, like.dtype) else None

    def _buffer(self, name: str, tensor: Tensor) -> Tensor:
        found = self._fitting(name, tensor)
        if found is None:
            found = self._buffers[name] = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=self.is_pinned)
        return found

    def _reserve(self, like: Mapping[str, Tensor]) -> None:
        try:
            for name, first, tensor in _with_first_names(like):
                if first != name:
                    continue
                if self.is_pinned and tensor.nbytes >= SMALL:
                    self._buffers[name] = self._pinned(tensor)
                else:
                    self._buffer(name, tensor)
        except BaseException:
            self._give_back()
            raise
        if self.num_unpinned:
            size = f"{self.num_unpinned / 2**30:.1f} GiB"
            print(f"Saves take longer: {size} of memory cannot be pinned. Raise `ulimit -l`.", flush=True)

    def _pinned(self, like: Tensor) -> Tensor:
        """Pages of its own that the driver pins: exactly as many as needed."""
        buffer = torch.frombuffer(mmap.mmap(-1, like.nbytes), dtype=like.dtype).view(like.shape)
        with torch.cuda.device(self.device):
            if int(_runtime().cudaHostRegister(buffer.data_ptr(), buffer.nbytes, PORTABLE)) == 0:
                self._registered.append(buffer)
            else:
                self.num_unpinned += buffer.nbytes
        return buffer


def _runtime() -> Any:
    return torch.cuda.cudart()


def _with_first_names(tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, str, Tensor]]:
    """Each name, the first name of the same tensor, and the tensor: tied weights have two names.

    {"embedding": w, "head": w} -> ("embedding", "embedding", w), ("head", "embedding", w)
    """
    names: dict[object, str] = {}
    for name, tensor in tensors.items():
        memory = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        # No memory: empty, or on the meta device.
        yield name, names.setdefault(memory if tensor.data_ptr() else name, name), tensor
