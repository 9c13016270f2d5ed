"""Attention of the graph engine over the pages of its cache; queries and keys are normed and rotated on the way."""

# pyright: reportIndexIssue=false
# Without Triton installed, pyright takes a kernel for the plain function below its decorator.

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ragen.modeling.kernels.norm import normed
from ragen.modeling.kernels.rotary import rotated
from ragen.modeling.kernels.session import LOG2E, PAGE, POSITION_COLUMN, TABLE_COLUMN
from ragen.modeling.kernels.split import is_last_part, joined_parts, parts_at_a_time, parts_of

BLOCK = 8
"""Query tokens of one program of prefill attention; new tokens of a session are padded to a multiple."""


@triton.jit
def _page_of(state, slot, stride, position, PAGE: tl.constexpr):
    """Address of the page that holds `position`."""
    return tl.load(state + slot * stride + TABLE_COLUMN + position // PAGE)


@triton.jit
def _cells(address, dtype: tl.constexpr):
    """Pointer to what lies at an address; the hint makes loads 16 bytes wide."""
    return tl.multiple_of(address.to(tl.pointer_type(dtype)), 16)


@triton.jit(do_not_specialize=["num_splits"])
def _decode_attention(
    qkv, out, slots, state, cos_table, sin_table, q_gain, k_gain, partial, stats, counters,
    layer_offset, stride, num_splits, scale, eps,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, PAGE: tl.constexpr, IS_SPLIT: tl.constexpr,
    HAS_NORM: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr, STAGES: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """One session and kv head, or one of at most `num_splits` parts of its tokens; the first takes the new token, too.

    Rotates queries and the new key, writes the new key and value into the cache and attends. The program that comes
    last joins the parts.
    """
    row, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    slot = tl.load(slots + row).to(tl.int64)
    if slot < 0:
        return
    GROUP: tl.constexpr = HEADS // KV_HEADS
    dtype = qkv.dtype.element_ty
    BYTES: tl.constexpr = dtype.primitive_bitwidth // 8
    position = tl.load(state + slot * stride + POSITION_COLUMN)
    num_tiles = (position + TILE - 1) // TILE
    share, num_parts = parts_of(num_tiles, num_splits)
    if split >= num_parts:
        return

    # Queries and the new key, rotated
    member, column, token = tl.arange(0, ROWS), tl.arange(0, DIM), tl.arange(0, TILE)
    other = (column + DIM // 2) % DIM
    sign = tl.where(column < DIM // 2, -1.0, 1.0)
    is_head = (member < GROUP)[:, None]
    source = qkv + row.to(tl.int64) * (HEADS + 2 * KV_HEADS) * DIM
    cos = tl.load(cos_table + position * (DIM // 2) + column % (DIM // 2)).to(tl.float32)
    sin = tl.load(sin_table + position * (DIM // 2) + column % (DIM // 2)).to(tl.float32)
    q_rows = source + (head * GROUP + member)[:, None] * DIM
    q = tl.load(q_rows + column[None, :], mask=is_head, other=0.0)
    q_other = tl.load(q_rows + other[None, :], mask=is_head, other=0.0)
    k_row = source + (HEADS + head) * DIM
    k_new, k_other = tl.load(k_row + column), tl.load(k_row + other)
    if HAS_NORM:
        x = q.to(tl.float32)
        scale_q = tl.rsqrt(tl.sum(x * x, axis=1) / DIM + eps)[:, None]
        q = normed(q, scale_q, tl.load(q_gain + column)[None, :])
        q_other = normed(q_other, scale_q, tl.load(q_gain + other)[None, :])
        x = k_new.to(tl.float32)
        scale_k = tl.rsqrt(tl.sum(x * x, axis=0) / DIM + eps)
        k_new = normed(k_new, scale_k, tl.load(k_gain + column))
        k_other = normed(k_other, scale_k, tl.load(k_gain + other))
    q = rotated(q, q_other, cos[None, :], sin[None, :], sign[None, :]).to(dtype)
    k_new = rotated(k_new, k_other, cos, sin, sign).to(dtype)
    v_new = tl.load(source + (HEADS + KV_HEADS + head) * DIM + column)

    # Cached tokens of this part
    k_offset = layer_offset + head * PAGE * DIM * BYTES
    v_offset = k_offset + KV_HEADS * PAGE * DIM * BYTES
    within = token[:, None] * DIM + column[None, :]
    if split == 0:
        address = _page_of(state, slot, stride, position, PAGE) + (position % PAGE) * DIM * BYTES
        tl.store(_cells(address + k_offset, dtype) + column, k_new)
        tl.store(_cells(address + v_offset, dtype) + column, v_new)
        top = tl.sum(q.to(tl.float32) * k_new.to(tl.float32)[None, :], axis=1) * scale
        totals = tl.zeros([ROWS, TILE], tl.float32) + tl.where(token == 0, 1.0, 0.0)[None, :]
        sums = tl.zeros([ROWS, DIM], tl.float32) + v_new.to(tl.float32)[None, :]
    else:
        top = tl.full([ROWS], -1e30, tl.float32)
        totals = tl.zeros([ROWS, TILE], tl.float32)
        sums = tl.zeros([ROWS, DIM], tl.float32)
    for tile in tl.range(split * share, tl.minimum((split + 1) * share, num_tiles), num_stages=STAGES):
        address = _page_of(state, slot, stride, tile * TILE, PAGE) + (tile * TILE % PAGE) * DIM * BYTES
        is_live = tile * TILE + token < position
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
        counter = counters + row * KV_HEADS + head
        if is_last_part(sums, top, total, partial, stats, counter, index, split, num_parts, member, is_head, ROWS, DIM):
            joined = joined_parts(partial, stats, index, num_parts, member, is_head, ROWS, DIM, CHUNK)
            tl.store(target, joined.to(dtype), mask=is_head)


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
    position = start + offset
    index = (block * BLOCK + offset).to(tl.int64)
    angle = position[:, None] * HALF + column[None, :]
    cos = tl.load(cos_table + angle, mask=is_token, other=0.0).to(tl.float32)
    sin = tl.load(sin_table + angle, mask=is_token, other=0.0).to(tl.float32)
    pages = tl.load(state + slot * stride + TABLE_COLUMN + position // PAGE, mask=offset < count, other=0)
    cells = _cells(pages + layer_offset + (position % PAGE) * DIM * BYTES, dtype)
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
                    x = normed(x, scale, tl.load(gain)[None, :])
                    y = normed(y, scale, tl.load(gain + HALF)[None, :])
                left = rotated(x, y, cos, sin, -1.0).to(dtype)
                y = rotated(y, x, cos, sin, 1.0).to(dtype)
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
    position = start + offset
    k_offset = layer_offset + head * PAGE * DIM * BYTES
    v_offset = k_offset + KV_HEADS * PAGE * DIM * BYTES
    within = token[:, None] * DIM + column[None, :]
    top = tl.full([BLOCK * GROUP_ROWS], -1e30, tl.float32)
    total = tl.zeros([BLOCK * GROUP_ROWS], tl.float32)
    sums = tl.zeros([BLOCK * GROUP_ROWS, DIM], tl.float32)
    end = start + count
    for page in tl.range(0, (end + PAGE - 1) // PAGE, num_stages=STAGES):
        address = _page_of(state, slot, stride, page * PAGE, PAGE)
        key_position = page * PAGE + token
        is_live = (key_position < end)[:, None]
        k = tl.load(_cells(address + k_offset, dtype) + within, mask=is_live, other=0.0)
        v = tl.load(_cells(address + v_offset, dtype) + within, mask=is_live, other=0.0)
        scores = tl.dot(queries, tl.trans(k)) * scale
        scores = tl.where(key_position[None, :] <= position[:, None], scores, -1e30)
        new_top = tl.maximum(top, tl.max(scores, axis=1))
        weights = tl.exp2(scores - new_top[:, None])
        shrink = tl.exp2(top - new_top)
        total = total * shrink + tl.sum(weights, axis=1)
        sums = sums * shrink[:, None] + tl.dot(weights.to(dtype), v)
        top = new_top
    tl.store(out + line[:, None] + column[None, :], (sums / total[:, None]).to(dtype), mask=is_query[:, None])


class PagedAttention:
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
        """Parts a session's tokens are split into: enough programs for 132 multiprocessors, few enough to join."""
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
            HAS_NORM=gains is not None, ROWS=self.decode_rows, TILE=tile, STAGES=5,
            CHUNK=parts_at_a_time(self.decode_rows * self.dim, splits), num_warps=warps,
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
