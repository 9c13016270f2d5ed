"""The gradients of several parts of a packed row, told apart by one backward pass.

A gradient for each group of a batch needs no pass for each group. The row is cut into slices, and every slice meets
copies of the trained weights: the same memory, but leaves of their own in the graph of autograd. Modules that hold
weights are called slice by slice; attention, rotation and activations, which hold none, see the row as a whole.

Tested in tests/modeling/test_slices.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from ragen.modeling.packing import Packing

Found = TypeVar("Found", bound=tuple[Tensor, ...])


class NotSliced(Exception):
    """The model uses a weight in a way that slices do not know."""


class Slices:
    """Slices of a packed row; inside `with`, forward passes of the model keep their weights apart.

    Backward passes belong inside, too: recomputed activations come through the same modules.
    """

    def __init__(self, model: Any, weights: Sequence[Tensor], packing: Packing, counts: Sequence[int], mask: Tensor):
        """Of the trained `weights`; `counts` sequences in each slice, [sequences, longest] `mask` of sampled tokens.

        The row must come from pack_apart: no slice reads a token of another one.
        """
        self.model, self.weights = model, list(weights)
        self.is_whole = len(counts) == 1
        """A single slice needs nothing: its weights are those of the model."""
        self.copies = [{id(weight): weight.detach().requires_grad_() for weight in self.weights} for _ in counts]
        self.sizes, self.num_sampled = _sizes(packing, counts, mask)

    def __enter__(self) -> Slices:
        self._before: list[tuple[nn.Module, Any]] = []
        head = self.model.get_output_embeddings()
        for module in self.model.modules() if not self.is_whole else ():
            names = _trained(module)
            if names and module is not head:
                self._before.append((module, vars(module).get("forward")))
                module.forward = partial(self._in_slices, module, names, module.forward)
        return self

    def __exit__(self, *_: object) -> None:
        for module, forward in self._before:
            if forward is None:
                del module.forward
            else:
                module.forward = forward

    def _in_slices(
        self, module: nn.Module, names: Sequence[str], forward: Callable[..., Any], *inputs: Any, **named: Any
    ) -> Any:
        """What a module makes of each slice with the slice's weights; they go token by token."""
        if not torch.is_grad_enabled():  # the reference, where adapters are switched off for it
            return forward(*inputs, **named)
        if named or len(inputs) != 1 or not isinstance(x := inputs[0], Tensor):
            raise _not_known(module)
        # Token ids have tokens last, everything else something before the last dimension: heads may come first.
        inner = x.shape[:-1] if x.is_floating_point() else x.shape
        dims = [dim for dim, size in enumerate(inner) if size in self.sizes]
        if len(dims) != 1:
            raise _not_known(module)
        found, dim = [], dims[0]
        for copies, part in zip(self.copies, x.split(self.sizes[x.shape[dim]], dim), strict=True):
            with _holding(module, names, copies):
                found.append(forward(part))
            # The router of experts returns several tensors, and lists tokens in a dimension of its own.
            if not isinstance(found[-1], Tensor) or found[-1].shape[: dim + 1] != part.shape[: dim + 1]:
                raise _not_known(module)
        return torch.cat(found, dim)

    def head(self, score: Callable[[Tensor, Tensor], Found], hidden: Tensor, targets: Tensor) -> Found:
        """`score` of each slice's sampled tokens, with the slice's weights in the output layer.

        It gets hidden states and what they are compared with, and returns some numbers for each row.
        """
        head = self.model.get_output_embeddings()
        names = _trained(head)
        if self.is_whole or not names:
            return score(hidden, targets)
        found = []
        parts = zip(self.copies, hidden.split(self.num_sampled), targets.split(self.num_sampled), strict=True)
        for copies, states, chosen in parts:
            # Recomputed in the backward pass without the copies: the numbers are the same, and the graph is the first.
            with _holding(head, names, copies):
                found.append(score(states, chosen))
        return cast(Found, tuple(torch.cat(column) for column in zip(*found, strict=True)))

    def gradients(self, loss: Tensor, *, keep: bool) -> Iterator[list[Tensor | None]]:
        """The gradients of a sum over the row, slice by slice; with `keep` another sum can follow."""
        if self.is_whole:
            yield list(torch.autograd.grad(loss, self.weights, retain_graph=keep, allow_unused=True))
            return
        copies = [copy for copies in self.copies for copy in copies.values()]
        found = torch.autograd.grad(loss, [*copies, *self.weights], retain_graph=keep, allow_unused=True)
        if any(gradient is not None for gradient in found[len(copies) :]):
            raise NotSliced("a weight is used outside of its module")
        count = len(self.weights)
        for number in range(len(self.copies)):
            yield list(found[number * count : (number + 1) * count])


def _not_known(module: nn.Module) -> NotSliced:
    return NotSliced(f"{type(module).__name__} is not known to go token by token")


def _trained(module: nn.Module) -> list[str]:
    """Names of a module's own trained weights."""
    return [name for name, weight in module.named_parameters(recurse=False) if weight.requires_grad]


@contextmanager
def _holding(module: nn.Module, names: Sequence[str], copies: Mapping[int, Tensor]) -> Iterator[None]:
    """Within: the module's weights are replaced by their copies."""
    own: Any = module._parameters  # which refuses tensors that are no parameters if asked politely
    before = {name: own[name] for name in names}
    own.update({name: copies[id(weight)] for name, weight in before.items()})
    try:
        yield
    finally:
        own.update(before)


def _sizes(packing: Packing, counts: Sequence[int], mask: Tensor) -> tuple[dict[int, list[int]], list[int]]:
    """Length of a row -> of each slice, for all tokens and for the wanted ones; and each slice's sampled tokens."""
    bounds = list(pairwise([0, *accumulate(counts)]))
    own = [length - shared for length, shared in zip(packing.lengths, packing.shared, strict=True)]
    sampled = mask[:, 1:].bool()
    is_wanted = torch.zeros(sum(own), dtype=torch.bool)
    for row, chosen in zip(packing.rows, sampled, strict=True):
        is_wanted[row[:-1][chosen[: len(row) - 1]]] = True
    tokens = [sum(own[start:end]) for start, end in bounds]
    wanted = [int(part.sum()) for part in is_wanted.split(tokens)]
    # Where all are wanted the two are the same.
    return {sum(wanted): wanted, sum(tokens): tokens}, [int(sampled[start:end].sum()) for start, end in bounds]
