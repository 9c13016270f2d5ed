"""Matrix products of a decode step that also do what stands before and after them.

With few rows a product is over as soon as its weights are read, and every further kernel costs as much as a small
product. A norm is split: whoever writes the residual also writes it times the norm's gain, and sums of its squares;
whoever reads that divides its result by the root mean square. Weights are read by the tensor memory accelerator.
"""

# pyright: reportIndexIssue=false
# Without Triton installed, pyright takes a kernel for the plain function below its decorator.

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def _linear(
    x, w, out, bias, squares_in, residual, gain, gained, squares_out, partial, counters,
    M, N, K, num_squares, hidden, eps,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLITS: tl.constexpr, STAGES: tl.constexpr,
    IS_GATED: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr, SQUARES: tl.constexpr,
):  # fmt: skip
    """A tile of x @ w.T; of SPLITS programs that share a tile, the last to come sums up the parts in order."""
    tile, split, m_tile = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    dtype = out.dtype.element_ty
    row, column = m_tile * BM + tl.arange(0, BM), tile * BN + tl.arange(0, BN)
    acc = tl.zeros([BM, BN], tl.float32)
    acc_up = tl.zeros([BM, BN], tl.float32)
    share = tl.cdiv(tl.cdiv(K, BK), SPLITS) * BK
    for k in tl.range(split * share, tl.minimum(K, (split + 1) * share), BK, num_stages=STAGES):
        a = x.load([m_tile * BM, k])
        acc = tl.dot(a, w.load([tile * BN, k]).T, acc)
        if IS_GATED:
            acc_up = tl.dot(a, w.load([N + tile * BN, k]).T, acc_up)

    is_last = True
    cell = row.to(tl.int64)[:, None] * N + column[None, :]
    inside = (row < M)[:, None] & (column < N)[None, :]
    if SPLITS > 1:
        area = tl.cast(M, tl.int64) * N
        tl.store(partial + split * area + cell, acc, mask=inside)
        tl.debug_barrier()  # every thread's part is written before the count says so
        counter = counters + m_tile * tl.num_programs(0) + tile
        is_last = tl.atomic_add(counter, 1, sem="acq_rel") == SPLITS - 1
        if is_last:
            tl.store(counter, 0)  # for the next launch
            acc = tl.zeros([BM, BN], tl.float32)
            for part in range(SPLITS):
                acc += tl.load(partial + part * area + cell, mask=inside, other=0.0, cache_modifier=".cg")
    if is_last:
        if SQUARES > 0:
            number = tl.arange(0, SQUARES)
            sums = tl.load(
                squares_in + row[:, None] * num_squares + number[None, :],
                mask=(row < M)[:, None] & (number < num_squares)[None, :],
                other=0.0,
            )
            scale = tl.rsqrt(tl.sum(sums, axis=1) / hidden + eps)
            acc = acc * scale[:, None]
            if IS_GATED:
                acc_up = acc_up * scale[:, None]
        if HAS_BIAS:
            acc += tl.load(bias + column, mask=column < N, other=0.0).to(tl.float32)[None, :]
        if IS_GATED:
            acc = acc / (1 + tl.exp(-acc)) * acc_up
        if HAS_RESIDUAL:
            acc += tl.load(residual + cell, mask=inside, other=0.0).to(tl.float32)
        result = acc.to(dtype)
        tl.store(out + cell, result, mask=inside)
        if HAS_RESIDUAL:
            value = result.to(tl.float32)
            weight = tl.load(gain + column, mask=column < N, other=0.0).to(tl.float32)
            tl.store(gained + cell, (value * weight[None, :]).to(dtype), mask=inside)
            value = tl.where(inside, value, 0.0)
            tl.store(squares_out + row * tl.num_programs(0) + tile, tl.sum(value * value, axis=1), mask=row < M)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tiling:
    """How a product is cut into programs."""

    bn: int
    bk: int
    splits: int = 1
    stages: int = 4
    warps: int = 4


@dataclass(frozen=True, slots=True)
class Stream:
    """A residual stream [rows, hidden], and what a norm of it needs."""

    x: Tensor
    gained: Tensor
    """x times the gain of the next norm."""
    squares: Tensor
    """[rows, parts] Sums of squares of parts of each row of x."""


class Scratch:
    """Where programs that share a tile meet."""

    def __init__(self, num_values: int, device: torch.device) -> None:
        self.partial = torch.empty(num_values, dtype=torch.float32, device=device)
        self.counters = torch.zeros(4096, dtype=torch.int32, device=device)


def _launch(
    x: Tensor, weight: Tensor, out: Tensor, tiling: Tiling, scratch: Scratch, *, eps: float = 0.0, hidden: int = 1,
    bias: Tensor | None = None, squares: Tensor | None = None, stream: Stream | None = None,
    gain: Tensor | None = None, after: Stream | None = None, is_gated: bool = False,
) -> None:  # fmt: skip
    rows, width = out.shape
    bm = min(128, max(16, triton.next_power_of_2(rows)))
    num_tiles, m_tiles = triton.cdiv(width, tiling.bn), triton.cdiv(rows, bm)
    assert tiling.splits == 1 or tiling.splits * rows * width <= scratch.partial.numel()
    _linear[(num_tiles, tiling.splits, m_tiles)](
        TensorDescriptor.from_tensor(x, [bm, tiling.bk]),
        TensorDescriptor.from_tensor(weight, [tiling.bn, tiling.bk]),
        out,
        bias if bias is not None else out,
        squares if squares is not None else out,
        stream.x if stream else out,
        gain if gain is not None else out,
        after.gained if after else out,
        after.squares if after else out,
        scratch.partial, scratch.counters,
        rows, width, x.shape[1], squares.shape[1] if squares is not None else 1, hidden, eps,
        BM=bm, BN=tiling.bn, BK=tiling.bk, SPLITS=tiling.splits, STAGES=tiling.stages, num_warps=tiling.warps,
        IS_GATED=is_gated, HAS_BIAS=bias is not None, HAS_RESIDUAL=after is not None,
        SQUARES=triton.next_power_of_2(squares.shape[1]) if squares is not None else 0,
    )  # fmt: skip


@triton.jit
def _start(x, gain, gained, squares, hidden, SIZE: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, SIZE)
    value = tl.load(x + row * hidden + column, mask=column < hidden, other=0.0)
    weight = tl.load(gain + column, mask=column < hidden, other=0.0).to(tl.float32)
    tl.store(gained + row * hidden + column, (value.to(tl.float32) * weight).to(value.dtype), mask=column < hidden)
    tl.store(squares + row, tl.sum(value.to(tl.float32) * value.to(tl.float32), axis=0))


def start(x: Tensor, gain: Tensor) -> Stream:
    """A stream from embeddings, ready for a norm with `gain`."""
    rows, hidden = x.shape
    stream = Stream(x, torch.empty_like(x), torch.empty(rows, 1, dtype=torch.float32, device=x.device))
    _start[(rows,)](x, gain, stream.gained, stream.squares, hidden, SIZE=triton.next_power_of_2(hidden))
    return stream


def linear(
    stream: Stream, weight: Tensor, bias: Tensor | None, tiling: Tiling, scratch: Scratch, *, eps: float
) -> Tensor:
    """norm(x) @ weight.T + bias"""
    out = stream.x.new_empty(len(stream.x), len(weight))
    _launch(
        stream.gained,
        weight,
        out,
        tiling,
        scratch,
        eps=eps,
        hidden=stream.x.shape[1],
        bias=bias,
        squares=stream.squares,
    )
    return out


def gated(stream: Stream, weight: Tensor, tiling: Tiling, scratch: Scratch, *, eps: float) -> Tensor:
    """silu(norm(x) @ upper.T) * (norm(x) @ lower.T) for the two halves of weight"""
    out = stream.x.new_empty(len(stream.x), len(weight) // 2)
    _launch(
        stream.gained,
        weight,
        out,
        tiling,
        scratch,
        eps=eps,
        hidden=stream.x.shape[1],
        squares=stream.squares,
        is_gated=True,
    )
    return out


def add(stream: Stream, y: Tensor, weight: Tensor, gain: Tensor, tiling: Tiling, scratch: Scratch) -> Stream:
    """x + y @ weight.T, ready for a norm with `gain`."""
    rows, hidden = stream.x.shape
    squares = torch.empty(rows, triton.cdiv(hidden, tiling.bn), dtype=torch.float32, device=y.device)
    after = Stream(torch.empty_like(stream.x), torch.empty_like(stream.x), squares)
    _launch(y, weight, after.x, tiling, scratch, stream=stream, gain=gain, after=after)
    return after
