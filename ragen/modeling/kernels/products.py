"""The four matrix products of a decoder layer, with the norm before them and the residual behind.

With few rows a product takes as long as its weights need to arrive, and a decode step is mostly the gaps between its
kernels. Up to SOME rows each product therefore is one kernel, whose programs ask for their weights before the kernel
ahead has ended (programmatic dependent launch) and wait only for the rows:

    FewRows     up to FEW rows: programs of one warp, each with whole rows of the weights in its registers
    SomeRows    matrix products of small tiles, where a tile of the weights fits into shared memory; who adds to the
                rows also prepares them for the norm that follows
    ManyRows    the library's products

Sums are taken in an order that depends on shapes alone. Before its wait a program may read only what was written before
the pass, as kernels ahead of the one ahead may still run, too: weights, gains, the state of sessions and the cache of
earlier tokens.

Tested in tests/modeling/kernels/test_products.py.
"""

# pyright: reportIndexIssue=false, reportOperatorIssue=false, reportAttributeAccessIssue=false
# Without Triton installed, pyright takes a kernel for the plain function below its decorator.
# ruff: noqa: RUF005
# Kernels know tuples, and sums of them, but no unpacking.

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ragen.modeling.kernels.activation import gated, gated_product
from ragen.modeling.kernels.norm import rms_norm_rows

FEW = 4
SOME = 32
CELLS = 32 * 1024
"""Numbers that a program of `SomeRows` holds of the rows: 32 rows of up to 1024, 16 of up to 2048."""
CHUNK = 1024
"""Columns of the weights that a program of `FewRows` takes at a time, and that one of `SomeRows` takes of a product
deeper than DEEP, which several share."""
DEEP = 2048


def can_start_early(device: torch.device) -> bool:
    """Whether kernels may begin before the one ahead has ended (Hopper and later; AMD's cards count differently)."""
    is_nvidia = device.type == "cuda" and torch.version.hip is None
    return is_nvidia and torch.cuda.get_device_capability(device)[0] >= 9


def early_launch(is_early: bool) -> dict[str, bool]:
    """The option of a launch; Triton knows it for NVIDIA's cards only."""
    return {"launch_pdl": True} if is_early else {}


class ManyRows:
    """Hidden states [rows, hidden] on their way through the layers."""

    def __init__(self, x: Tensor, eps: float) -> None:
        self.x, self.eps = x, eps

    def normed(self, gain: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """norm(x) @ weight.T + bias, [rows, width]."""
        return torch.nn.functional.linear(rms_norm_rows(self.x, gain, self.eps), weight, bias)

    def gated(self, gain: Tensor, weight: Tensor) -> Tensor:
        """silu(norm(x) @ gate.T) * (norm(x) @ up.T); `weight` [2 * width, hidden] holds gate above up."""
        return gated_product(rms_norm_rows(self.x, gain, self.eps), weight)

    def add(self, y: Tensor, weight: Tensor, *, next_gain: Tensor) -> None:
        """x += y @ weight.T; `next_gain` is that of the norm that follows."""
        self.x.addmm_(y, weight.t())

    def keep(self, rows: Tensor) -> None:
        """Only these from now on; an `add` follows."""
        self.x = self.x[rows]


@triton.jit
def _lines(weight, first, column, width, depth, PER: tl.constexpr, LINES: tl.constexpr):
    """A chunk of LINES rows of the weights: PER neighbours, and as many below the other half."""
    lines = ()
    for line in tl.static_range(LINES):
        source = first + line % PER
        start = (source + line // PER * width).to(tl.int64) * depth
        is_cell = (column < depth) & (source < width)
        lines = lines + (tl.load(weight + start + column, mask=is_cell, other=0.0),)
    return lines


@triton.jit
def _dots(
    x, gain, weight, bias, out, width, depth, eps,
    HAS_NORM: tl.constexpr, HAS_BIAS: tl.constexpr, IS_GATED: tl.constexpr, IS_ADDED: tl.constexpr,
    ROWS: tl.constexpr, PER: tl.constexpr, CHUNKS: tl.constexpr, AHEAD: tl.constexpr, IS_EARLY: tl.constexpr,
):  # fmt: skip
    """PER numbers of each row: the rows times PER rows of the weights (gated: of both halves).

    The first AHEAD chunks of the weights are asked for before the kernel ahead has ended.
    """
    if IS_EARLY:
        gdc_launch_dependents()
    LINES: tl.constexpr = 2 * PER if IS_GATED else PER
    first = tl.program_id(0) * PER
    inner = tl.arange(0, 4)[:, None] * 256 + tl.arange(0, 256)[None, :]  # sums over the first axis stay in a thread
    weights, gains, biases = (), (), ()
    for chunk in tl.static_range(AHEAD):
        weights = weights + _lines(weight, first, chunk * 1024 + inner, width, depth, PER, LINES)
        if HAS_NORM:
            gains = gains + (tl.load(gain + chunk * 1024 + inner, mask=chunk * 1024 + inner < depth, other=0.0),)
    for i in tl.static_range(PER):
        if HAS_BIAS:
            biases = biases + (tl.load(bias + first + i, mask=first + i < width, other=0.0),)
    if IS_EARLY:
        gdc_wait()

    sums, squares, residuals = (), (), ()
    for row in tl.static_range(ROWS):
        squares = squares + (0.0,)
        for _ in tl.static_range(LINES):
            sums = sums + (0.0,)
        for i in tl.static_range(PER):
            if IS_ADDED:
                cell = out + row * width + first + i
                residuals = residuals + (tl.load(cell, mask=first + i < width, other=0.0),)
    for chunk in tl.static_range(CHUNKS):
        column = chunk * 1024 + inner
        if chunk >= AHEAD:
            weights = weights + _lines(weight, first, column, width, depth, PER, LINES)
            if HAS_NORM:
                gains = gains + (tl.load(gain + column, mask=column < depth, other=0.0),)
        new_sums, new_squares = (), ()
        for row in tl.static_range(ROWS):
            values = tl.load(x + row * depth + column, mask=column < depth, other=0.0).to(tl.float32)
            if HAS_NORM:
                new_squares = new_squares + (squares[row] + tl.sum(values * values),)
                values = values * gains[chunk].to(tl.float32)
            for line in tl.static_range(LINES):
                product = tl.sum(weights[chunk * LINES + line].to(tl.float32) * values)
                new_sums = new_sums + (sums[row * LINES + line] + product,)
        sums = new_sums
        if HAS_NORM:
            squares = new_squares

    dtype = out.dtype.element_ty
    for row in tl.static_range(ROWS):
        scale = tl.rsqrt(squares[row] / depth + eps) if HAS_NORM else 1.0
        for i in tl.static_range(PER):
            result = sums[row * LINES + i] * scale
            if IS_GATED:
                result = gated(result.to(dtype), (sums[row * LINES + PER + i] * scale).to(dtype))
            if HAS_BIAS:
                result += biases[i].to(tl.float32)
            if IS_ADDED:
                result += residuals[row * PER + i].to(tl.float32)
            tl.store(out + row * width + first + i, result.to(dtype), mask=first + i < width)


class FewRows(ManyRows):
    """The same for up to FEW rows."""

    def __init__(self, x: Tensor, eps: float) -> None:
        super().__init__(x, eps)
        self.is_early = can_start_early(x.device)

    def normed(self, gain: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        out = self.x.new_empty(len(self.x), len(weight))
        self._launch(self.x, weight, out, gain=gain, bias=bias)
        return out

    def gated(self, gain: Tensor, weight: Tensor) -> Tensor:
        out = self.x.new_empty(len(self.x), len(weight) // 2)
        self._launch(self.x, weight, out, gain=gain, is_gated=True)
        return out

    def add(self, y: Tensor, weight: Tensor, *, next_gain: Tensor) -> None:
        self._launch(y, weight, self.x, is_added=True)

    def _launch(
        self,
        x: Tensor,
        weight: Tensor,
        out: Tensor,
        *,
        gain: Tensor | None = None,
        bias: Tensor | None = None,
        is_gated: bool = False,
        is_added: bool = False,
    ) -> None:
        (num_rows, depth), width = x.shape, out.shape[1]
        chunks = triton.cdiv(depth, CHUNK)
        per = numbers_of_a_program(width, chunks, is_gated)
        _dots[(triton.cdiv(width, per),)](
            x, x if gain is None else gain, weight, x if bias is None else bias, out, width, depth, self.eps,
            HAS_NORM=gain is not None, HAS_BIAS=bias is not None, IS_GATED=is_gated, IS_ADDED=is_added,
            ROWS=num_rows, PER=per, CHUNKS=chunks, AHEAD=min(chunks, MOST_AHEAD), IS_EARLY=self.is_early,
            num_warps=1, **early_launch(self.is_early),
        )  # fmt: skip


MOST_AHEAD = 8
"""Chunks of a row of the weights that a warp holds at once."""


def numbers_of_a_program(width: int, chunks: int, is_gated: bool) -> int:
    """Of each row, in `FewRows`: a multiprocessor has room for 32 programs, and for so many registers."""
    return 2 if is_gated and chunks == 1 else 1


@triton.jit
def _tiles(
    x, squares, weight, bias, out, gain, prepared, next_squares, partial, counters,
    num_rows, width, depth, num_squares, eps,
    IS_NORMED: tl.constexpr, HAS_BIAS: tl.constexpr, IS_GATED: tl.constexpr, IS_ADDED: tl.constexpr,
    SPLITS: tl.constexpr, JOINED: tl.constexpr, ROWS: tl.constexpr, TALL: tl.constexpr, WARPS: tl.constexpr,
    SIZE: tl.constexpr, SQUARES: tl.constexpr, SOME: tl.constexpr, IS_EARLY: tl.constexpr,
):  # fmt: skip
    """TALL rows of the weights times all rows of `x`, or one of SPLITS parts of their columns.

    Each warp multiplies SIZE columns. The program that comes last joins the parts, always in the same order. IS_NORMED:
    `x` is weighted by the gain already, and `squares` [num_squares, SOME] holds parts of the sums of its squares.
    IS_ADDED: the sum becomes ready for the next norm in the same way, in `prepared` and `next_squares`.
    """
    if IS_EARLY:
        gdc_launch_dependents()
    tile, split = tl.program_id(0), tl.program_id(1)
    line, row = tl.arange(0, TALL), tl.arange(0, ROWS)
    HEIGHT: tl.constexpr = TALL // 2 if IS_GATED else TALL  # gated: gate rows, and the up rows that belong to them
    column = tile * HEIGHT + line % HEIGHT
    source = column + line // HEIGHT * width
    inner = (split * WARPS + tl.arange(0, WARPS))[:, None, None] * SIZE + tl.arange(0, SIZE)[None, None, :]
    is_inner = inner < depth
    is_line = (column < width)[None, :, None] & is_inner
    weights = tl.load(weight + source.to(tl.int64)[None, :, None] * depth + inner, mask=is_line, other=0.0)
    if IS_EARLY:
        gdc_wait()

    is_row = row < num_rows
    rows = tl.load(x + row[None, :, None] * depth + inner, mask=is_row[None, :, None] & is_inner, other=0.0)
    own_column = tile * HEIGHT + tl.arange(0, HEIGHT)
    is_own = own_column < width
    is_cell = is_own[:, None] & is_row[None, :]
    target = row.to(tl.int64)[None, :] * width + own_column[:, None]
    if IS_NORMED:
        part = tl.arange(0, SQUARES)[:, None]
        parts = tl.load(squares + part * SOME + row[None, :], mask=part < num_squares, other=0.0)
    if IS_ADDED:
        residual = tl.load(out + target, mask=is_cell, other=0.0).to(tl.float32)
        gains = tl.load(gain + own_column, mask=is_own, other=0.0)[:, None]
    sums = tl.sum(tl.dot(weights, tl.permute(rows, (0, 2, 1))), axis=0)  # [TALL, ROWS]

    is_last = True
    if SPLITS > 1:
        cell = line[:, None] * ROWS + row[None, :]
        own = partial + tile * SPLITS * TALL * ROWS
        tl.store(own + split * TALL * ROWS + cell, sums)
        tl.debug_barrier()  # every thread's part is written before the count says so
        is_last = tl.atomic_add(counters + tile, 1, sem="acq_rel") == SPLITS - 1
    if is_last:
        total = sums
        if SPLITS > 1:
            tl.store(counters + tile, 0)  # for the next launch
            index = tl.arange(0, JOINED)[:, None, None]
            others = own + index * TALL * ROWS + cell[None, :, :]
            total = tl.sum(tl.load(others, mask=index < SPLITS, other=0.0, cache_modifier=".cg"), axis=0)
        if IS_NORMED:
            total *= tl.rsqrt(tl.sum(parts, axis=0) / depth + eps)[None, :]
        dtype = out.dtype.element_ty
        if IS_GATED:
            gate, up = tl.split(tl.permute(tl.reshape(total, (2, HEIGHT, ROWS)), (1, 2, 0)))
            result = gated(gate.to(dtype), up.to(dtype))
        else:
            result = total
        if HAS_BIAS:
            result += tl.load(bias + own_column, mask=is_own, other=0.0).to(tl.float32)[:, None]
        if IS_ADDED:
            result += residual
        rounded = result.to(dtype)
        tl.store(out + target, rounded, mask=is_cell)
        if IS_ADDED:
            tl.store(prepared + target, rounded * gains, mask=is_cell)
            values = tl.where(is_own[:, None], rounded.to(tl.float32), 0.0)
            tl.store(next_squares + tile * SOME + row, tl.sum(values * values, axis=0))


@triton.jit
def _prepare(
    x, gain, prepared, squares, width, num_squares,
    SIZE: tl.constexpr, SQUARES: tl.constexpr, SOME: tl.constexpr,
):  # fmt: skip
    """What `_tiles` leaves with IS_ADDED, for the rows as they come."""
    row, column, part = tl.program_id(0), tl.arange(0, SIZE), tl.arange(0, SQUARES)
    values = tl.load(x + row * width + column, mask=column < width, other=0.0)
    gains = tl.load(gain + column, mask=column < width, other=0.0)
    tl.store(prepared + row * width + column, values * gains, mask=column < width)
    total = tl.sum(values.to(tl.float32) * values.to(tl.float32))
    tl.store(squares + part * SOME + row, tl.where(part == 0, total, 0.0), mask=part < num_squares)


class Workshop:
    """Where programs of `SomeRows` join their parts of a product; one for all layers of a model."""

    def __init__(self, *added: Tensor) -> None:
        """`added`: the weights that `add` will be given, of one layer."""
        tiles, device = max(triton.cdiv(len(weight), TALL) for weight in added), added[0].device
        depths = [weight.shape[1] for weight in added]
        parts = max(_num_splits(depth) for depth in depths)
        self.columns = max(triton.next_power_of_2(triton.cdiv(depth, _num_splits(depth))) for depth in depths)
        self.shared_memory = _shared_memory(device)
        self.partial = torch.empty(tiles * TALL * SOME * parts, dtype=torch.float32, device=device)
        self.counters = torch.zeros(tiles, dtype=torch.int32, device=device)

    def hidden(self, x: Tensor, gain: Tensor, eps: float) -> ManyRows:
        """Rows on their way, in the form for so many; `gain` is that of the first norm."""
        if len(x) <= FEW:
            return FewRows(x, eps)
        if len(x) <= SOME and self._has_room(x) and x.dtype != torch.float16:  # a state times its gain may pass 65504
            return SomeRows(x, eps, gain, self)
        return ManyRows(x, eps)

    def _has_room(self, x: Tensor) -> bool:
        """Whether programs of `SomeRows` can hold the rows, and all of their tile of the weights beside them."""
        rows, columns = _padded(len(x)), triton.next_power_of_2(x.shape[1])
        cells = max((2 * TALL + rows) * columns, (TALL + rows) * self.columns)
        return rows * columns <= CELLS and 2 * cells <= self.shared_memory  # weights have 16 bits


class SomeRows(ManyRows):
    """The same for rows of no more than CELLS numbers."""

    def __init__(self, x: Tensor, eps: float, gain: Tensor, workshop: Workshop) -> None:
        super().__init__(x, eps)
        self.workshop, self.is_early = workshop, can_start_early(x.device)
        self.num_squares = triton.cdiv(x.shape[1], TALL)
        self.squares = torch.empty(self.num_squares, SOME, dtype=torch.float32, device=x.device)
        self.prepared = torch.empty_like(x)
        _prepare[(len(x),)](
            x, gain, self.prepared, self.squares, x.shape[1], self.num_squares,
            SIZE=triton.next_power_of_2(x.shape[1]), SQUARES=triton.next_power_of_2(self.num_squares), SOME=SOME,
        )  # fmt: skip

    def normed(self, gain: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        out = self.x.new_empty(len(self.x), len(weight))
        self._launch(self.prepared, weight, out, bias=bias)
        return out

    def gated(self, gain: Tensor, weight: Tensor) -> Tensor:
        out = self.x.new_empty(len(self.x), len(weight) // 2)
        self._launch(self.prepared, weight, out, is_gated=True)
        return out

    def add(self, y: Tensor, weight: Tensor, *, next_gain: Tensor) -> None:
        self._launch(y, weight, self.x, next_gain=next_gain)

    def keep(self, rows: Tensor) -> None:
        self.x, self.prepared = self.x[rows], self.prepared[rows]

    def _launch(
        self,
        x: Tensor,
        weight: Tensor,
        out: Tensor,
        *,
        bias: Tensor | None = None,
        next_gain: Tensor | None = None,
        is_gated: bool = False,
    ) -> None:
        (num_rows, depth), width, rows = x.shape, out.shape[1], _padded(len(x))
        is_added = next_gain is not None
        splits = _num_splits(depth) if is_added else 1
        tall, warps = tile_and_warps(triton.cdiv(depth, splits), is_gated)
        size = max(16, triton.next_power_of_2(triton.cdiv(depth, splits * warps)))
        _tiles[(triton.cdiv(width, tall // 2 if is_gated else tall), splits)](
            x, self.squares, weight, x if bias is None else bias, out, x if next_gain is None else next_gain,
            self.prepared, self.squares, self.workshop.partial, self.workshop.counters,
            num_rows, width, depth, self.num_squares, self.eps,
            IS_NORMED=not is_added, HAS_BIAS=bias is not None, IS_GATED=is_gated, IS_ADDED=is_added,
            SPLITS=splits, JOINED=triton.next_power_of_2(splits), ROWS=rows, TALL=tall, WARPS=warps, SIZE=size,
            SQUARES=triton.next_power_of_2(self.num_squares), SOME=SOME, IS_EARLY=self.is_early,
            num_warps=warps, **early_launch(self.is_early),
        )  # fmt: skip


TALL = 16
"""Numbers of each row that a program of `SomeRows` adds to."""


def tile_and_warps(depth: int, is_gated: bool) -> tuple[int, int]:
    """Rows of the weights that a program of `SomeRows` takes, with `depth` columns, and its warps; tried on an H200."""
    return 2 * TALL if is_gated else TALL, 4 if depth <= CHUNK else 8


def _shared_memory(device: torch.device) -> int:
    """Bytes that a program can have; Triton's interpreter on a CPU has those of Hopper."""
    if device.type == "cpu":
        return 227 * 1024
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin


def _padded(num_rows: int) -> int:
    return max(8, triton.next_power_of_2(num_rows))


def _num_splits(depth: int) -> int:
    """Programs that share a tile of a product that is added."""
    return triton.cdiv(depth, CHUNK) if depth > DEEP else 1
