"""The GPU kernels of the graph engine: everything of a decoder layer that is not a matrix product.

A page of the cache holds PAGE tokens of one session in all layers: [layer, key or value, kv head, PAGE, head dim].
Kernels find pages by their address in memory, which the state of the session lists, so a captured graph stays valid
when the cache grows or is freed and made anew. State of a session, a row of int64: HEADER numbers, then its pages.
Importing this module needs Triton; only the graph engine does.
"""

# pyright: reportIndexIssue=false
# Without Triton installed, pyright takes a kernel for the plain function below its decorator.

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

PAGE = 64
BLOCK = 8
"""Query tokens of one program of prefill attention; new tokens of a session are padded to a multiple."""
LOG2E = 1.4426950408889634
CHUNK = 4096
"""Logits of one program of the first sampling pass."""

HEADER = 8
SEED, POSITION, COUNT, TOKEN, TEMPERATURE = range(5)
"""Columns of a session's state: key of the noise; cached tokens; tokens of the reply so far; the last of them; bits
of the float64 temperature."""

SEED_COLUMN, POSITION_COLUMN, COUNT_COLUMN = tl.constexpr(SEED), tl.constexpr(POSITION), tl.constexpr(COUNT)
TOKEN_COLUMN, TEMPERATURE_COLUMN = tl.constexpr(TOKEN), tl.constexpr(TEMPERATURE)
TABLE_COLUMN = tl.constexpr(HEADER)
LOG2E_FACTOR = tl.constexpr(LOG2E)


# Embedding, norms, activation


@triton.jit
def _embed(ids, slots, state, weight, out, hidden, stride, FROM_STATE: tl.constexpr, SIZE: tl.constexpr):
    row = tl.program_id(0)
    if FROM_STATE:
        slot = tl.maximum(tl.load(slots + row), 0).to(tl.int64)
        token = tl.load(state + slot * stride + TOKEN_COLUMN)
    else:
        token = tl.load(ids + row)
    column = tl.arange(0, SIZE)
    x = tl.load(weight + token * hidden + column, mask=column < hidden)
    tl.store(out + row * hidden + column, x, mask=column < hidden)


def embed(ids: Tensor, weight: Tensor) -> Tensor:
    """Rows of the embedding, [tokens, hidden]."""
    out = weight.new_empty(len(ids), weight.shape[1])
    _embed[(len(ids),)](
        ids, ids, ids, weight, out, weight.shape[1], 0, FROM_STATE=False, SIZE=triton.next_power_of_2(weight.shape[1])
    )
    return out


def embed_last(slots: Tensor, state: Tensor, weight: Tensor) -> Tensor:
    """Rows of the embedding for the last token of each session, [rows, hidden]; slot -1 is padding."""
    out = weight.new_empty(len(slots), weight.shape[1])
    size = triton.next_power_of_2(weight.shape[1])
    _embed[(len(slots),)](
        slots, slots, state, weight, out, weight.shape[1], state.stride(0), FROM_STATE=True, SIZE=size
    )
    return out


@triton.jit
def _rms_norm(x, weight, out, hidden, eps, SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, SIZE)
    inside = column < hidden
    raw = tl.load(x + row * hidden + column, mask=inside, other=0.0)
    values = raw.to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, axis=0) / hidden + eps)
    normed = (values * scale).to(raw.dtype)  # rounded where the model's own norm rounds
    gain = tl.load(weight + column, mask=inside, other=0.0)
    tl.store(out + row * hidden + column, gain * normed, mask=inside)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    rows, hidden = x.shape
    out = torch.empty_like(x)
    size = triton.next_power_of_2(hidden)
    _rms_norm[(rows,)](x, weight, out, hidden, eps, SIZE=size, num_warps=8 if size >= 4096 else 4)
    return out


@triton.jit
def _activated(gate, up):
    """silu(gate) * up, rounded where the model's own modules round."""
    x = gate.to(tl.float32)
    return (x / (1 + tl.exp(-x))).to(gate.dtype) * up


@triton.jit
def _silu_mul(gate_up, out, width, SIZE: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = part * SIZE + tl.arange(0, SIZE)
    inside = column < width
    gate = tl.load(gate_up + row * 2 * width + column, mask=inside, other=0.0)
    up = tl.load(gate_up + row * 2 * width + width + column, mask=inside, other=0.0)
    tl.store(out + row * width + column, _activated(gate, up), mask=inside)


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
        size = 1024
        _silu_mul[(num_rows, triton.cdiv(width, size))](x @ weight.t(), out, width, SIZE=size)
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


# Attention


@triton.jit
def _page_of(state, slot, stride, place, PAGE: tl.constexpr):
    """Address of the page that holds `place`."""
    return tl.load(state + slot * stride + TABLE_COLUMN + place // PAGE)


@triton.jit
def _cells(address, dtype: tl.constexpr):
    """Pointer to what lies at an address; the hint makes loads 16 bytes wide."""
    return tl.multiple_of(address.to(tl.pointer_type(dtype)), 16)


@triton.jit
def _rotated(x, y, cos, sin, sign):
    """Rotary embedding of x, whose other half is y."""
    return x.to(tl.float32) * cos + sign * y.to(tl.float32) * sin


@triton.jit(do_not_specialize=["num_splits"])
def _decode_attention(
    qkv, out, slots, state, cos_table, sin_table, q_gain, k_gain, partial, stats, counters,
    layer_offset, stride, num_splits, scale, eps,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, PAGE: tl.constexpr, IS_SPLIT: tl.constexpr,
    HAS_NORM: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """One session and kv head, or one of `num_splits` parts of its tokens; the first part also takes the new token.

    Rotates queries and the new key, writes the new key and value into the cache and attends. The program that comes
    last joins the parts, always in the same order.
    """
    row, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    slot = tl.load(slots + row).to(tl.int64)
    if slot < 0:
        return
    GROUP: tl.constexpr = HEADS // KV_HEADS
    dtype = qkv.dtype.element_ty
    BYTES: tl.constexpr = dtype.primitive_bitwidth // 8
    place = tl.load(state + slot * stride + POSITION_COLUMN)

    # Queries and the new key, rotated
    member, column, token = tl.arange(0, ROWS), tl.arange(0, DIM), tl.arange(0, TILE)
    other = (column + DIM // 2) % DIM
    sign = tl.where(column < DIM // 2, -1.0, 1.0)
    is_head = (member < GROUP)[:, None]
    source = qkv + row.to(tl.int64) * (HEADS + 2 * KV_HEADS) * DIM
    cos = tl.load(cos_table + place * (DIM // 2) + column % (DIM // 2)).to(tl.float32)
    sin = tl.load(sin_table + place * (DIM // 2) + column % (DIM // 2)).to(tl.float32)
    q_rows = source + (head * GROUP + member)[:, None] * DIM
    q = tl.load(q_rows + column[None, :], mask=is_head, other=0.0)
    q_other = tl.load(q_rows + other[None, :], mask=is_head, other=0.0)
    k_row = source + (HEADS + head) * DIM
    k_new, k_other = tl.load(k_row + column), tl.load(k_row + other)
    if HAS_NORM:
        x = q.to(tl.float32)
        q_scale = tl.rsqrt(tl.sum(x * x, axis=1) / DIM + eps)[:, None]
        q = tl.load(q_gain + column)[None, :] * (x * q_scale).to(dtype)
        q_other = tl.load(q_gain + other)[None, :] * (q_other.to(tl.float32) * q_scale).to(dtype)
        x = k_new.to(tl.float32)
        k_scale = tl.rsqrt(tl.sum(x * x, axis=0) / DIM + eps)
        k_new = tl.load(k_gain + column) * (x * k_scale).to(dtype)
        k_other = tl.load(k_gain + other) * (k_other.to(tl.float32) * k_scale).to(dtype)
    q = _rotated(q, q_other, cos[None, :], sin[None, :], sign[None, :]).to(dtype)
    k_new = _rotated(k_new, k_other, cos, sin, sign).to(dtype)
    v_new = tl.load(source + (HEADS + KV_HEADS + head) * DIM + column)

    # Cached tokens of this part
    k_offset = layer_offset + head * PAGE * DIM * BYTES
    v_offset = k_offset + KV_HEADS * PAGE * DIM * BYTES
    within = token[:, None] * DIM + column[None, :]
    if split == 0:
        address = _page_of(state, slot, stride, place, PAGE) + (place % PAGE) * DIM * BYTES
        tl.store(_cells(address + k_offset, dtype) + column, k_new)
        tl.store(_cells(address + v_offset, dtype) + column, v_new)
        top = tl.sum(q.to(tl.float32) * k_new.to(tl.float32)[None, :], axis=1) * scale
        totals = tl.zeros([ROWS, TILE], tl.float32) + tl.where(token == 0, 1.0, 0.0)[None, :]
        sums = tl.zeros([ROWS, DIM], tl.float32) + v_new.to(tl.float32)[None, :]
    else:
        top = tl.full([ROWS], -1e30, tl.float32)
        totals = tl.zeros([ROWS, TILE], tl.float32)
        sums = tl.zeros([ROWS, DIM], tl.float32)
    num_tiles = (place + TILE - 1) // TILE
    share = (num_tiles + num_splits - 1) // num_splits
    for tile in tl.range(split * share, tl.minimum((split + 1) * share, num_tiles), num_stages=STAGES):
        address = _page_of(state, slot, stride, tile * TILE, PAGE) + (tile * TILE % PAGE) * DIM * BYTES
        is_live = tile * TILE + token < place
        k = tl.load(_cells(address + k_offset, dtype) + within, mask=is_live[:, None], other=0.0)
        v = tl.load(_cells(address + v_offset, dtype) + within, mask=is_live[:, None], other=0.0)
        scores = tl.dot(q, tl.trans(k)) * scale
        scores = tl.where(is_live[None, :], scores, -1e30)
        new_top = tl.maximum(top, tl.max(scores, axis=1))
        weights = tl.exp2(scores - new_top[:, None])
        shrink = tl.exp2(top - new_top)
        totals = totals * shrink[:, None] + weights
        sums = sums * shrink[:, None] + tl.dot(weights.to(dtype), v)
        top = new_top
    total = tl.sum(totals, axis=1)

    target = out + row.to(tl.int64) * HEADS * DIM + (head * GROUP + member)[:, None] * DIM + column[None, :]
    if not IS_SPLIT:
        tl.store(target, (sums / total[:, None]).to(dtype), mask=is_head)
    else:
        index = (row * KV_HEADS + head) * num_splits
        cell = member[:, None] * DIM + column[None, :]
        tl.store(partial + (index + split).to(tl.int64) * ROWS * DIM + cell, sums)
        tl.store(stats + (index + split) * 2 * ROWS + member, top)
        tl.store(stats + (index + split) * 2 * ROWS + ROWS + member, total)
        tl.debug_barrier()  # every thread's part is written before the count says so
        counter = counters + row * KV_HEADS + head
        if tl.atomic_add(counter, 1, sem="acq_rel") == num_splits - 1:
            tl.store(counter, 0)  # for the next launch
            top = tl.full([ROWS], -1e30, tl.float32)
            total = tl.zeros([ROWS], tl.float32)
            sums = tl.zeros([ROWS, DIM], tl.float32)
            for part in range(num_splits):
                part_top = tl.load(stats + (index + part) * 2 * ROWS + member, cache_modifier=".cg")
                part_total = tl.load(stats + (index + part) * 2 * ROWS + ROWS + member, cache_modifier=".cg")
                part_sums = tl.load(partial + (index + part).to(tl.int64) * ROWS * DIM + cell, cache_modifier=".cg")
                new_top = tl.maximum(top, part_top)
                total = total * tl.exp2(top - new_top) + part_total * tl.exp2(part_top - new_top)
                sums = sums * tl.exp2(top - new_top)[:, None] + part_sums * tl.exp2(part_top - new_top)[:, None]
                top = new_top
            tl.store(target, (sums / total[:, None]).to(dtype), mask=is_head)


@triton.jit
def _rotate_and_store(
    qkv, q_out, blocks, state, cos_table, sin_table, q_gain, k_gain, layer_offset, stride, eps,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, PAGE: tl.constexpr, BLOCK: tl.constexpr,
    HAS_NORM: tl.constexpr, SHARE: tl.constexpr,
):  # fmt: skip
    """SHARE heads of a block of prompt tokens: rotates queries and keys, writes keys and values into the cache."""
    block = tl.program_id(0)
    slot = tl.load(blocks + 3 * block)
    start = tl.load(blocks + 3 * block + 1)
    count = tl.load(blocks + 3 * block + 2)
    if count == 0:
        return
    dtype = qkv.dtype.element_ty
    BYTES: tl.constexpr = dtype.primitive_bitwidth // 8
    HALF: tl.constexpr = DIM // 2
    offset, column = tl.arange(0, BLOCK), tl.arange(0, HALF)
    is_token = (offset < count)[:, None]
    place = start + offset
    index = (block * BLOCK + offset).to(tl.int64)
    angle = place[:, None] * HALF + column[None, :]
    cos = tl.load(cos_table + angle, mask=is_token, other=0.0).to(tl.float32)
    sin = tl.load(sin_table + angle, mask=is_token, other=0.0).to(tl.float32)
    pages = tl.load(state + slot * stride + TABLE_COLUMN + place // PAGE, mask=offset < count, other=0)
    cells = _cells(pages + layer_offset + (place % PAGE) * DIM * BYTES, dtype)
    for i in tl.static_range(SHARE):
        head = tl.program_id(1) * SHARE + i
        if head < HEADS + 2 * KV_HEADS:
            source = qkv + index[:, None] * (HEADS + 2 * KV_HEADS) * DIM + head * DIM + column[None, :]
            x, y = tl.load(source, mask=is_token, other=0.0), tl.load(source + HALF, mask=is_token, other=0.0)
            if head < HEADS + KV_HEADS:
                if HAS_NORM:
                    squares = x.to(tl.float32) * x.to(tl.float32) + y.to(tl.float32) * y.to(tl.float32)
                    scale = tl.rsqrt(tl.sum(squares, axis=1) / DIM + eps)[:, None]
                    gain = q_gain + column if head < HEADS else k_gain + column
                    x = tl.load(gain)[None, :] * (x.to(tl.float32) * scale).to(dtype)
                    y = tl.load(gain + HALF)[None, :] * (y.to(tl.float32) * scale).to(dtype)
                left = _rotated(x, y, cos, sin, -1.0).to(dtype)
                y = _rotated(y, x, cos, sin, 1.0).to(dtype)
                x = left
            if head < HEADS:
                target = q_out + index[:, None] * HEADS * DIM + head * DIM + column[None, :]
            else:  # keys come after the queries and values after the keys, in the row as in the page
                target = cells[:, None] + (head - HEADS) * PAGE * DIM + column[None, :]
            tl.store(target, x, mask=is_token)
            tl.store(target + HALF, y, mask=is_token)


@triton.jit
def _prefill_attention(
    q, out, blocks, state, layer_offset, stride, scale,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, PAGE: tl.constexpr, BLOCK: tl.constexpr,
    GROUP_ROWS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """BLOCK neighbouring new tokens of a session, all queries of one kv head, over everything cached before them."""
    block, head = tl.program_id(0), tl.program_id(1)
    slot = tl.load(blocks + 3 * block)
    start = tl.load(blocks + 3 * block + 1).to(tl.int32)
    count = tl.load(blocks + 3 * block + 2).to(tl.int32)
    if count == 0:
        return
    GROUP: tl.constexpr = HEADS // KV_HEADS
    dtype = q.dtype.element_ty
    BYTES: tl.constexpr = dtype.primitive_bitwidth // 8
    row, column, token = tl.arange(0, BLOCK * GROUP_ROWS), tl.arange(0, DIM), tl.arange(0, PAGE)
    offset, member = row // GROUP_ROWS, row % GROUP_ROWS
    is_query = (offset < count) & (member < GROUP)
    line = (block * BLOCK + offset).to(tl.int64) * HEADS * DIM + (head * GROUP + member) * DIM
    queries = tl.load(q + line[:, None] + column[None, :], mask=is_query[:, None], other=0.0)
    place = start + offset
    k_offset = layer_offset + head * PAGE * DIM * BYTES
    v_offset = k_offset + KV_HEADS * PAGE * DIM * BYTES
    within = token[:, None] * DIM + column[None, :]
    top = tl.full([BLOCK * GROUP_ROWS], -1e30, tl.float32)
    total = tl.zeros([BLOCK * GROUP_ROWS], tl.float32)
    sums = tl.zeros([BLOCK * GROUP_ROWS, DIM], tl.float32)
    end = start + count
    for page in tl.range(0, (end + PAGE - 1) // PAGE, num_stages=STAGES):
        address = _page_of(state, slot, stride, page * PAGE, PAGE)
        key_place = page * PAGE + token
        is_live = (key_place < end)[:, None]
        k = tl.load(_cells(address + k_offset, dtype) + within, mask=is_live, other=0.0)
        v = tl.load(_cells(address + v_offset, dtype) + within, mask=is_live, other=0.0)
        scores = tl.dot(queries, tl.trans(k)) * scale
        scores = tl.where(key_place[None, :] <= place[:, None], scores, -1e30)
        new_top = tl.maximum(top, tl.max(scores, axis=1))
        weights = tl.exp2(scores - new_top[:, None])
        shrink = tl.exp2(top - new_top)
        total = total * shrink + tl.sum(weights, axis=1)
        sums = sums * shrink[:, None] + tl.dot(weights.to(dtype), v)
        top = new_top
    tl.store(out + line[:, None] + column[None, :], (sums / total[:, None]).to(dtype), mask=is_query[:, None])


class Attention:
    """Attention of one model's layers over the pages of the cache."""

    def __init__(
        self,
        *,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        scale: float,
        eps: float,
        cos: Tensor,
        sin: Tensor,
        max_rows: int,
    ) -> None:
        self.heads, self.kv_heads, self.dim = num_heads, num_kv_heads, head_dim
        self.scale = scale * LOG2E  # kernels count in powers of two
        self.eps, self.cos, self.sin = eps, cos, sin
        self.layer_bytes = 2 * num_kv_heads * PAGE * head_dim * cos.element_size()
        group = num_heads // num_kv_heads
        self.group_rows = max(16 // BLOCK, triton.next_power_of_2(group))  # a matrix product has 16 rows or more
        self.decode_rows = max(16, self.group_rows)
        device = cos.device
        cells = max(self.num_splits(rows) * rows for rows in range(1, max_rows + 1)) * num_kv_heads * self.decode_rows
        self.partial = torch.empty(cells * head_dim, dtype=torch.float32, device=device)
        self.stats = torch.empty(2 * cells, dtype=torch.float32, device=device)
        self.counters = torch.zeros(max_rows * num_kv_heads, dtype=torch.int32, device=device)

    def num_splits(self, rows: int) -> int:
        """Parts a session's tokens are cut into: enough programs for 132 multiprocessors, few enough to join."""
        return min(32, triton.next_power_of_2(max(1, 400 // (rows * self.kv_heads))))

    def decode(self, layer: int, qkv: Tensor, gains: tuple[Tensor, Tensor] | None, slots: Tensor, state: Tensor):
        """[rows, (heads + 2 kv heads) * dim] of the last tokens -> [rows, heads * dim]; the cache grows by a token."""
        rows, splits = len(slots), self.num_splits(len(slots))
        out = qkv.new_empty(rows, self.heads * self.dim)
        q_gain, k_gain = gains or (self.cos, self.cos)
        tile, warps = (PAGE, 4) if rows < 256 else (16, 1)  # many programs hide each other's waits; tried on an H200
        _decode_attention[(rows, self.kv_heads, splits)](
            qkv, out, slots, state, self.cos, self.sin, q_gain, k_gain, self.partial, self.stats, self.counters,
            layer * self.layer_bytes, state.stride(0), splits, self.scale, self.eps,
            HEADS=self.heads, KV_HEADS=self.kv_heads, DIM=self.dim, PAGE=PAGE, IS_SPLIT=splits > 1,
            HAS_NORM=gains is not None, ROWS=self.decode_rows, TILE=tile, STAGES=5, num_warps=warps,
        )  # fmt: skip
        return out

    def prefill(self, layer: int, qkv: Tensor, gains: tuple[Tensor, Tensor] | None, blocks: Tensor, state: Tensor):
        """The same for prompt tokens; `blocks` [tokens / BLOCK, 3] names slot, first position and number of tokens."""
        tokens = len(qkv)
        queries = qkv.new_empty(tokens, self.heads * self.dim)
        out = torch.empty_like(queries)
        q_gain, k_gain = gains or (self.cos, self.cos)
        offset = layer * self.layer_bytes
        share = 4
        _rotate_and_store[(tokens // BLOCK, triton.cdiv(self.heads + 2 * self.kv_heads, share))](
            qkv, queries, blocks, state, self.cos, self.sin, q_gain, k_gain, offset, state.stride(0), self.eps,
            HEADS=self.heads, KV_HEADS=self.kv_heads, DIM=self.dim, PAGE=PAGE, BLOCK=BLOCK,
            HAS_NORM=gains is not None, SHARE=share, num_warps=2,
        )  # fmt: skip
        _prefill_attention[(tokens // BLOCK, self.kv_heads)](
            queries, out, blocks, state, offset, state.stride(0), self.scale,
            HEADS=self.heads, KV_HEADS=self.kv_heads, DIM=self.dim, PAGE=PAGE, BLOCK=BLOCK,
            GROUP_ROWS=self.group_rows, STAGES=5, num_warps=4,
        )  # fmt: skip
        return out


@triton.jit
def _copy_pages(pairs, num_words, SIZE: tl.constexpr):
    pair, part = tl.program_id(0), tl.program_id(1)
    source = _cells(tl.load(pairs + 2 * pair), tl.int32)
    target = _cells(tl.load(pairs + 2 * pair + 1), tl.int32)
    index = part * SIZE + tl.arange(0, SIZE)
    tl.store(target + index, tl.load(source + index, mask=index < num_words), mask=index < num_words)


def copy_pages(pairs: Tensor, page_bytes: int) -> None:
    """Copy whole pages; `pairs` [n, 2] holds addresses of source and target."""
    num_words, size = page_bytes // 4, 4096
    _copy_pages[(len(pairs), triton.cdiv(num_words, size))](pairs, num_words, SIZE=size)


# Sampling


@triton.jit
def _splitmix(x):
    """SplitMix64, as `sampling.uniform_noise` has it."""
    x = x + 0x9E3779B97F4A7C15
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


@triton.jit
def _tempered(state, slot, stride):
    """What logits are multiplied with to be powers of two at the session's temperature, and whether it is greedy."""
    temperature = tl.load(state + slot * stride + TEMPERATURE_COLUMN).to(tl.float64, bitcast=True).to(tl.float32)
    is_greedy = temperature == 0
    return LOG2E_FACTOR / tl.where(is_greedy, 1.0, temperature), is_greedy


@triton.jit
def _chunk_sums(logits, slots, state, tops, sums, moments, stride, vocab, num_chunks, CHUNK: tl.constexpr):
    """Of a part of the vocabulary: the maximum, the sum of exponentials, and that sum weighted with the exponents."""
    row, chunk = tl.program_id(0), tl.program_id(1)
    slot = tl.load(slots + row).to(tl.int64)
    if slot < 0:
        return
    factor, _ = _tempered(state, slot, stride)
    column = chunk * CHUNK + tl.arange(0, CHUNK)
    x = tl.load(logits + row.to(tl.int64) * vocab + column, mask=column < vocab, other=-float("inf")).to(tl.float32)
    top = tl.max(x, axis=0) * factor
    exponent = x * factor - tl.maximum(top, -1e30)
    weight = tl.exp2(exponent)
    tl.store(tops + row * num_chunks + chunk, top)
    tl.store(sums + row * num_chunks + chunk, tl.sum(weight, axis=0))
    tl.store(moments + row * num_chunks + chunk, tl.sum(tl.where(weight > 0, weight * exponent, 0.0), axis=0))


@triton.jit
def _draw(
    logits, slots, state, tops, sums, moments, out, stride, vocab, num_chunks, num_rows,
    CHUNK: tl.constexpr, CHUNKS: tl.constexpr, ADVANCE: tl.constexpr,
):  # fmt: skip
    """Invert the cumulative distribution in vocabulary order: first over the chunks, then inside one."""
    row = tl.program_id(0)
    slot = tl.load(slots + row).to(tl.int64)
    if slot < 0:
        return
    own = state + slot * stride
    count = tl.load(own + COUNT_COLUMN)
    key = _splitmix(tl.load(own + SEED_COLUMN).to(tl.uint64, bitcast=True))
    noise = (_splitmix(key ^ count.to(tl.uint64, bitcast=True)) >> 11).to(tl.int64).to(tl.float64) * (2.0**-53)

    # 1. The chunk
    chunk = tl.arange(0, CHUNKS)
    is_chunk = chunk < num_chunks
    chunk_top = tl.load(tops + row * num_chunks + chunk, mask=is_chunk, other=-float("inf"))
    chunk_sum = tl.load(sums + row * num_chunks + chunk, mask=is_chunk, other=0.0)
    top = tl.max(chunk_top, axis=0)
    mass = chunk_sum * tl.exp2(chunk_top - top)
    total = tl.sum(mass, axis=0)
    goal = (noise * total.to(tl.float64)).to(tl.float32)
    chosen = tl.sum((is_chunk & (tl.cumsum(mass, axis=0) <= goal)).to(tl.int32), axis=0)
    # Rounding may leave nothing above the goal; then the likeliest is as good as any.
    chosen = tl.where(chosen < num_chunks, chosen, tl.argmax(mass, axis=0))

    # 2. The token in it
    column = tl.arange(0, CHUNK)
    factor, is_greedy = _tempered(state, slot, stride)
    chosen = tl.where(is_greedy, tl.argmax(chunk_top, axis=0), chosen)
    before = tl.sum(tl.where(chunk < chosen, mass, 0.0), axis=0)
    first = chosen * CHUNK
    line = logits + row.to(tl.int64) * vocab + first
    x = tl.load(line + column, mask=first + column < vocab, other=-float("inf")).to(tl.float32) * factor
    weights = tl.exp2(x - top)
    index = tl.sum((before + tl.cumsum(weights, axis=0) <= goal).to(tl.int32), axis=0)
    likeliest = tl.argmax(x, axis=0)
    index = tl.where(is_greedy | (index >= tl.minimum(CHUNK, vocab - first)), likeliest, index)
    own_logit = tl.sum(tl.where(column == index, x, 0.0), axis=0)
    token = first + index
    tl.store(out + row, token)
    tl.store(out + num_rows + row, ((own_logit - top - tl.log2(total)) / LOG2E_FACTOR).to(tl.int32, bitcast=True))
    # With p = 2^y / total the entropy is log2(total) - sum(2^y * y) / total, in bits.
    moment = tl.load(moments + row * num_chunks + chunk, mask=is_chunk, other=0.0) * tl.exp2(chunk_top - top)
    moment += tl.where(mass > 0, mass * (chunk_top - top), 0.0)
    entropy = tl.maximum(tl.log2(total) - tl.sum(moment, axis=0) / total, 0.0) / LOG2E_FACTOR
    tl.store(out + 2 * num_rows + row, entropy.to(tl.int32, bitcast=True))
    tl.store(own + TOKEN_COLUMN, token.to(tl.int64))
    tl.store(own + COUNT_COLUMN, count + 1)
    if ADVANCE:
        tl.store(own + POSITION_COLUMN, tl.load(own + POSITION_COLUMN) + 1)


def draw(logits: Tensor, slots: Tensor, state: Tensor, out: Tensor, *, advance: bool) -> None:
    """Draw the next token of each session; its state moves on.

    `out` [3, rows] int32 gets the tokens and the bits of their float32 log-probs and of the entropies, in nats, where
    they were drawn; rows with slot -1 are left alone.
    One pass over the logits, and a second look at one chunk of each row.
    """
    rows, vocab = logits.shape
    num_chunks = triton.cdiv(vocab, CHUNK)
    tops = torch.empty(rows, num_chunks, dtype=torch.float32, device=logits.device)
    sums, moments = torch.empty_like(tops), torch.empty_like(tops)
    _chunk_sums[(rows, num_chunks)](
        logits, slots, state, tops, sums, moments, state.stride(0), vocab, num_chunks, CHUNK=CHUNK, num_warps=4
    )
    _draw[(rows,)](
        logits, slots, state, tops, sums, moments, out, state.stride(0), vocab, num_chunks, out.shape[1],
        CHUNK=CHUNK, CHUNKS=triton.next_power_of_2(num_chunks), ADVANCE=advance, num_warps=8,
    )  # fmt: skip
