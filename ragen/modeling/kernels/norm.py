"""Root mean square norm."""

# pyright: reportIndexIssue=false
# Without Triton installed, pyright takes a kernel for the plain function below its decorator.

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

NUM_PROGRAMS = 1024
"""Of the gradient; each sums its rows' part of the gain's gradient."""


@triton.jit
def normed(x, scale, gain):
    """x, scaled to a norm of one and weighted, rounded where the model's own norm rounds."""
    return gain * (x.to(tl.float32) * scale).to(x.dtype)


@triton.jit
def _norm(
    x, gain, out, inverse, num_rows, width, eps, ROWS: tl.constexpr, SIZE: tl.constexpr, KEEP_INVERSE: tl.constexpr
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, SIZE)
    inside = (row < num_rows)[:, None] & (column < width)[None, :]
    index = row.to(tl.int64)[:, None] * width + column[None, :]
    raw = tl.load(x + index, mask=inside, other=0.0)
    values = raw.to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, axis=1) / width + eps)
    weight = tl.load(gain + column, mask=column < width, other=0.0)[None, :]
    tl.store(out + index, normed(raw, scale[:, None], weight), mask=inside)
    if KEEP_INVERSE:
        tl.store(inverse + row, scale, mask=row < num_rows)


@triton.jit
def _norm_backward(
    grad_out, x, gain, inverse, grad_x, partial, num_rows, width, ROWS: tl.constexpr, SIZE: tl.constexpr
):
    column = tl.arange(0, SIZE)
    is_column = column < width
    weight = tl.load(gain + column, mask=is_column, other=0.0).to(tl.float32)
    total = tl.zeros([SIZE], tl.float32)
    for block in range(tl.program_id(0), tl.cdiv(num_rows, ROWS), tl.num_programs(0)):
        row = block * ROWS + tl.arange(0, ROWS)
        inside = (row < num_rows)[:, None] & is_column[None, :]
        index = row.to(tl.int64)[:, None] * width + column[None, :]
        scale = tl.load(inverse + row, mask=row < num_rows, other=0.0)[:, None]
        unit = tl.load(x + index, mask=inside, other=0.0).to(tl.float32) * scale
        grad = tl.load(grad_out + index, mask=inside, other=0.0).to(tl.float32)
        total += tl.sum(grad * unit, axis=0)
        grad = grad * weight[None, :]
        grad = scale * (grad - unit * (tl.sum(grad * unit, axis=1) / width)[:, None])
        tl.store(grad_x + index, grad.to(grad_x.dtype.element_ty), mask=inside)
    tl.store(partial + tl.program_id(0) * width + column, total, mask=is_column)


def _launch(rows: Tensor, gain: Tensor, eps: float, blocks: dict[str, int], inverse: Tensor | None) -> Tensor:
    (num_rows, width), out = rows.shape, torch.empty_like(rows)
    _norm[(triton.cdiv(num_rows, blocks["ROWS"]),)](
        rows, gain, out, rows if inverse is None else inverse, num_rows, width, eps,
        KEEP_INVERSE=inverse is not None, **blocks,
    )  # fmt: skip
    return out


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        inverse = torch.empty(len(rows), device=x.device)
        ctx.save_for_backward(rows, gain, inverse)
        return _launch(rows, gain, eps, _row_blocks(x.shape[-1]), inverse).view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor):
        rows, gain, inverse = ctx.saved_tensors
        (num_rows, width), grad_x = rows.shape, torch.empty_like(rows)
        blocks = _row_blocks(width)
        num_programs = min(NUM_PROGRAMS, triton.cdiv(num_rows, blocks["ROWS"]))
        partial = torch.empty(num_programs, width, device=rows.device)
        grad_rows = grad_out.reshape(rows.shape).contiguous()
        _norm_backward[(num_programs,)](grad_rows, rows, gain, inverse, grad_x, partial, num_rows, width, **blocks)
        return grad_x.view(grad_out.shape), partial.sum(0).to(gain.dtype), None


def _row_blocks(width: int) -> dict[str, int]:
    """Shape of a block of whole rows."""
    size = triton.next_power_of_2(width)
    return {"ROWS": max(1, 1024 // size), "SIZE": size, "num_warps": 8 if size >= 4096 else 4}


def rms_norm(x: Tensor, gain: Tensor, eps: float) -> Tensor:  # [..., width]
    """The model's norm over the last dimension, with its gradient."""
    return _RmsNorm.apply(x, gain, eps)  # type: ignore[return-value]


def rms_norm_rows(x: Tensor, gain: Tensor, eps: float) -> Tensor:  # [rows, width]
    """The same of contiguous rows without a gradient; few of them, so each has a program of its own."""
    return _launch(x, gain, eps, _row_blocks(x.shape[-1]) | {"ROWS": 1}, None)
