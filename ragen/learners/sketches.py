"""Sketches of gradients: a few thousand numbers from which lengths and angles follow to about 2 %.

Tested in tests/learners/test_gradients.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ragen.modeling.team import gathered
from ragen.seeding import fixed_hash

SKETCH_SIZE = 4099
"""Numbers in a sketch: lengths are off by about sqrt(2 / 4099) / 2 = 1.1 %, cosines by 0.016. A prime, so that no
dimension of a model falls onto the same number again and again."""
NUM_ROWS = 2**14
"""Rows of a flat gradient that are signed at once, 268 MB."""


class Sketch:
    """Sketches of gradients; the signs, a byte for each weight, are drawn for the first one and kept for the others."""

    def __init__(self) -> None:
        self._signs: dict[int, Tensor] = {}

    def __call__(self, gradients: Mapping[int, Tensor]) -> Tensor:
        """Of the gradients of all weights, by number."""
        found = []
        for number, gradient in gradients.items():
            whole = gathered(gradient)
            if number not in self._signs:
                self._signs[number] = signs_of(whole, number)
            found.append(sketch_of(whole, self._signs[number]))
        return torch.stack(found).sum(0)


class Flat:
    """All gradients of a model in one float32 tensor, [rows, SKETCH_SIZE], so that a few kernels do for all of them.

    Every weight starts a row of its own, so that the sum of the signed rows is what Sketch returns. `filled` has the
    gradients that were given last.
    """

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self.shapes = [weight.shape for weight in weights]
        self.num_rows = [-(-weight.numel() // SKETCH_SIZE) for weight in weights]
        self.device = weights[0].device
        self.signs = self.zeros(torch.int8)
        for number, (weight, sign) in enumerate(zip(weights, self.views(self.signs), strict=True)):
            sign.copy_(signs_of(weight, number).view(weight.shape))
        self.filled = self.zeros()
        self._filled = self.views(self.filled)

    def zeros(self, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.zeros(sum(self.num_rows), SKETCH_SIZE, dtype=dtype, device=self.device)

    def views(self, flat: Tensor) -> list[Tensor]:
        """The gradient of each weight; what is between them stays zero."""
        parts = zip(flat.split(self.num_rows), self.shapes, strict=True)
        return [rows.flatten()[: shape.numel()].view(shape) for rows, shape in parts]

    def fill(self, gradients: Sequence[Tensor | None]) -> Tensor:
        """Write the gradients of all weights into `filled`; None is zero."""
        pairs = list(zip(self._filled, gradients, strict=True))
        for view in (view for view, gradient in pairs if gradient is None):
            view.zero_()
        found = [(view, gradient) for view, gradient in pairs if gradient is not None]
        torch._foreach_copy_([view for view, _ in found], [gradient for _, gradient in found])
        return self.filled

    def sketch(self, flat: Tensor) -> Tensor:  # [SKETCH_SIZE]
        blocks = zip(flat.split(NUM_ROWS), self.signs.split(NUM_ROWS), strict=True)
        return torch.stack([(rows * signs).sum(0) for rows, signs in blocks]).sum(0)

    def norm(self, flat: Tensor) -> Tensor:
        return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(self.views(flat))))


def signs_of(tensor: Tensor, number: int) -> Tensor:
    """1 or -1 for each entry, fixed by `number`, that of the weight."""
    generator = torch.Generator(tensor.device).manual_seed(fixed_hash("gradient sketch", number) % 2**63)
    shape = (tensor.numel(),)
    return torch.randint(0, 2, shape, generator=generator, device=tensor.device, dtype=torch.int8).mul_(2).sub_(1)


def sketch_of(tensor: Tensor, signs: Tensor) -> Tensor:
    """A random linear map to SKETCH_SIZE numbers that keeps lengths.

    The entries get their signs, and every SKETCH_SIZE-th one is summed (count sketch, Charikar et al. 2002).
    """
    signed = tensor.detach().flatten().float() * signs
    return torch.nn.functional.pad(signed, (0, -len(signed) % SKETCH_SIZE)).view(-1, SKETCH_SIZE).sum(0)
