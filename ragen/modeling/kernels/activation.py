"""Gated activation, silu(gate) * up, on its own or together with the products that it joins."""

# pyright: reportIndexIssue=false
# Without Triton installed, pyright takes a kernel for the plain function below its decorator.

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def _activated(gate, up):
    """silu(gate) * up, rounded where the model's own modules round."""
    x = gate.to(tl.float32)
    return (x / (1 + tl.exp(-x))).to(gate.dtype) * up


@triton.jit
def _silu_mul(gate, up, out, width, stride, SIZE: tl.constexpr):
    """SIZE numbers of a row; rows of `gate` and `up` are `stride` apart, those of `out` follow each other."""
    num_parts = tl.cdiv(width, SIZE)
    row, part = (tl.program_id(0) // num_parts).to(tl.int64), (tl.program_id(0) % num_parts).to(tl.int64)
    column = part * SIZE + tl.arange(0, SIZE)
    inside = column < width
    g = tl.load(gate + row * stride + column, mask=inside, other=0.0)
    u = tl.load(up + row * stride + column, mask=inside, other=0.0)
    tl.store(out + row * width + column, _activated(g, u), mask=inside)


@triton.jit
def _silu_mul_backward(grad_out, gate, up, grad_gate, grad_up, num_cells, BLOCK: tl.constexpr):
    cell = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = cell < num_cells
    grad = tl.load(grad_out + cell, mask=inside, other=0.0).to(tl.float32)
    raw = tl.load(gate + cell, mask=inside, other=0.0)
    x = raw.to(tl.float32)
    u = tl.load(up + cell, mask=inside, other=0.0).to(tl.float32)
    sigmoid = 1 / (1 + tl.exp(-x))
    tl.store(grad_gate + cell, (grad * u * sigmoid * (1 + x * (1 - sigmoid))).to(raw.dtype), mask=inside)
    tl.store(grad_up + cell, (grad * x * sigmoid).to(raw.dtype), mask=inside)


class _SiluMul(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        gate, up = gate.contiguous(), up.contiguous()
        out = torch.empty_like(gate)
        # One long row: rows of the model's width would leave the last block of each half empty.
        _silu_mul[(triton.cdiv(out.numel(), 2048),)](gate, up, out, out.numel(), 0, SIZE=2048)
        ctx.save_for_backward(gate, up)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor):
        gate, up = ctx.saved_tensors
        grads, count = (torch.empty_like(gate), torch.empty_like(up)), gate.numel()
        _silu_mul_backward[(triton.cdiv(count, 2048),)](grad_out.contiguous(), gate, up, *grads, count, BLOCK=2048)
        return grads


def silu_mul(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up."""
    return _SiluMul.apply(gate, up)  # type: ignore[return-value]


@triton.jit
def _gated_product(
    x, weight, out, num_rows, width, hidden,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, BAND: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """A tile of both products and its activation; `x` and `weight` are tensor descriptors."""
    # Neighbouring programs share rows and columns: down a band of BAND tiles, then right.
    num_down, num_across = tl.cdiv(num_rows, ROWS), tl.cdiv(width, COLUMNS)
    band, index = tl.program_id(0) // (BAND * num_across), tl.program_id(0) % (BAND * num_across)
    height = tl.minimum(num_down - band * BAND, BAND)
    row, column = (band * BAND + index % height) * ROWS, index // height * COLUMNS
    gate = tl.zeros([ROWS, COLUMNS], tl.float32)
    up = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in tl.range(0, hidden, DEPTH, num_stages=STAGES):
        part = x.load([row, start])
        gate = tl.dot(part, weight.load([column, start]).T, gate)
        up = tl.dot(part, weight.load([width + column, start]).T, up)
    dtype = out.dtype.element_ty
    activated = _activated(gate.to(dtype), up.to(dtype))
    rows, columns = row + tl.arange(0, ROWS), column + tl.arange(0, COLUMNS)
    inside = (rows < num_rows)[:, None] & (columns < width)[None, :]
    tl.store(out + rows[:, None].to(tl.int64) * width + columns[None, :], activated, mask=inside)


def gated_product(x: Tensor, weight: Tensor) -> Tensor:
    """silu(x @ gate.T) * (x @ up.T), [rows, width]; `weight` [2 * width, hidden] holds gate above up.

    One kernel where it is faster than the library's product and a pass over its result, tried on an H200.
    """
    num_rows, width = len(x), len(weight) // 2
    out = x.new_empty(num_rows, width)
    if not _has_large_tiles(x.device) or num_rows <= 32 or 128 < num_rows < 2048:
        gate_up, size = x @ weight.t(), 1024
        grid = (num_rows * triton.cdiv(width, size),)
        _silu_mul[grid](gate_up, gate_up[:, width:], out, width, 2 * width, SIZE=size)
        return out
    size, depth, warps = (64, 64, 4) if num_rows <= 128 else (128, 64, 8)
    num_tiles = triton.cdiv(num_rows, size) * triton.cdiv(width, size)
    # Small tiles: with four stages two programs fit a multiprocessor, with three stages three.
    stages = 3 if size == 64 and num_tiles > 2 * 132 else 4
    _gated_product[(num_tiles,)](
        TensorDescriptor.from_tensor(x, [size, depth]), TensorDescriptor.from_tensor(weight, [size, depth]), out,
        num_rows, width, x.shape[1],
        ROWS=size, COLUMNS=size, DEPTH=depth, BAND=16, STAGES=stages, num_warps=warps,
    )  # fmt: skip
    return out


def _has_large_tiles(device: torch.device) -> bool:
    """Whether a program can hold 192 KiB (Hopper, Blackwell); Triton's interpreter on a CPU can."""
    return device.type == "cpu" or torch.cuda.get_device_capability(device)[0] in (9, 10)
