"""Several tokens of each session at once, to check drafts: attention in split parts, and which tokens are taken."""

# pyright: reportIndexIssue=false
# Without Triton installed, pyright takes a kernel for the plain function below its decorator.

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ragen.modeling.kernels.attention import PagedAttention, _cells, _page_of, _rotate_and_store
from ragen.modeling.kernels.session import COUNT_COLUMN, PAGE, POSITION_COLUMN, TOKEN_COLUMN
from ragen.modeling.kernels.split import is_last_part, joined_parts, parts_at_a_time, parts_of


@triton.jit(do_not_specialize=["num_splits"])
def _verify_attention(
    q, out, blocks, state, partial, stats, counters, layer_offset, stride, num_splits, scale,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, PAGE: tl.constexpr, WIDTH: tl.constexpr,
    GROUP_ROWS: tl.constexpr, STAGES: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """WIDTH neighbouring tokens of a session, all queries of one kv head, over a part of its pages.

    There are at most `num_splits` parts, and the program that comes last joins them. The tokens' own keys and
    values are in the cache already.
    """
    block, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    slot = tl.load(blocks + 3 * block)
    start = tl.load(blocks + 3 * block + 1).to(tl.int32)
    count = tl.load(blocks + 3 * block + 2).to(tl.int32)
    if count == 0:
        return
    end = start + count
    num_pages = (end + PAGE - 1) // PAGE
    share, num_parts = parts_of(num_pages, num_splits)
    if split >= num_parts:
        return
    ROWS: tl.constexpr = WIDTH * GROUP_ROWS
    GROUP: tl.constexpr = HEADS // KV_HEADS
    dtype = q.dtype.element_ty
    BYTES: tl.constexpr = dtype.primitive_bitwidth // 8
    row, column, token = tl.arange(0, ROWS), tl.arange(0, DIM), tl.arange(0, PAGE)
    offset, member = row // GROUP_ROWS, row % GROUP_ROWS
    is_query = ((offset < count) & (member < GROUP))[:, None]
    line = (block * WIDTH + offset).to(tl.int64) * HEADS * DIM + (head * GROUP + member) * DIM
    queries = tl.load(q + line[:, None] + column[None, :], mask=is_query, other=0.0)
    position = start + offset
    k_offset = layer_offset + head * PAGE * DIM * BYTES
    v_offset = k_offset + KV_HEADS * PAGE * DIM * BYTES
    within = token[:, None] * DIM + column[None, :]
    top = tl.full([ROWS], -1e30, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    sums = tl.zeros([ROWS, DIM], tl.float32)
    for page in tl.range(split * share, tl.minimum((split + 1) * share, num_pages), num_stages=STAGES):
        address = _page_of(state, slot, stride, page * PAGE, PAGE)
        key_position = page * PAGE + token
        is_live = (key_position < end)[:, None]
        k = tl.load(_cells(address + k_offset, dtype) + within, mask=is_live, other=0.0)
        v = tl.load(_cells(address + v_offset, dtype) + within, mask=is_live, other=0.0)
        # A part may hold nothing a query may see: its weights are 0 then, not those of equal scores.
        is_seen = key_position[None, :] <= position[:, None]
        scores = tl.where(is_seen, tl.dot(queries, tl.trans(k)) * scale, -1e30)
        new_top = tl.maximum(top, tl.max(scores, axis=1))
        weights = tl.where(is_seen, tl.exp2(scores - new_top[:, None]), 0.0)
        shrink = tl.exp2(top - new_top)
        total = total * shrink + tl.sum(weights, axis=1)
        sums = sums * shrink[:, None] + tl.dot(weights.to(dtype), v)
        top = new_top

    index = (block * KV_HEADS + head) * num_splits
    counter = counters + block * KV_HEADS + head
    if is_last_part(sums, top, total, partial, stats, counter, index, split, num_parts, row, is_query, ROWS, DIM):
        joined = joined_parts(partial, stats, index, num_parts, row, is_query, ROWS, DIM, CHUNK)
        tl.store(out + line[:, None] + column[None, :], joined.to(dtype), mask=is_query)


class VerifyAttention:
    """Attention of WIDTH neighbouring tokens of each session, over the pages that `paged` decodes with."""

    def __init__(self, paged: PagedAttention, *, sessions: int, width: int) -> None:
        self.paged, self.width = paged, width
        self.group_rows = max(16 // width, triton.next_power_of_2(paged.heads // paged.kv_heads))
        self.splits = min(paged.num_splits(sessions), triton.cdiv(len(paged.cos), PAGE))  # no more than pages
        device = paged.cos.device
        rows = sessions * paged.kv_heads * self.splits * width * self.group_rows
        self.partial = torch.empty(rows * paged.dim, dtype=torch.float32, device=device)
        self.stats = torch.empty(2 * rows, dtype=torch.float32, device=device)
        self.counters = torch.zeros(sessions * paged.kv_heads, dtype=torch.int32, device=device)

    def __call__(
        self, layer: int, qkv: Tensor, gains: tuple[Tensor, Tensor] | None, blocks: Tensor, state: Tensor
    ) -> Tensor:
        """[sessions * width, (heads + 2 kv heads) * dim] -> [sessions * width, heads * dim]; the cache grows.

        `blocks` [sessions, 3] names slot, first position and number of tokens.
        """
        paged, sessions = self.paged, len(qkv) // self.width
        queries = qkv.new_empty(len(qkv), paged.heads * paged.dim)
        out = torch.empty_like(queries)  # rows without a token stay arbitrary, and nobody reads what becomes of them
        q_gain, k_gain = gains or (paged.cos, paged.cos)
        offset, share = layer * paged.layer_bytes, 1
        _rotate_and_store[(sessions, triton.cdiv(paged.heads + 2 * paged.kv_heads, share))](
            qkv, queries, blocks, state, paged.cos, paged.sin, q_gain, k_gain, offset, state.stride(0), paged.eps,
            HEADS=paged.heads, KV_HEADS=paged.kv_heads, DIM=paged.dim, PAGE=PAGE, BLOCK=self.width,
            HAS_NORM=gains is not None, SHARE=share, num_warps=1,
        )  # fmt: skip
        _verify_attention[(sessions, paged.kv_heads, self.splits)](
            queries, out, blocks, state, self.partial, self.stats, self.counters, offset, state.stride(0),
            self.splits, paged.scale,
            HEADS=paged.heads, KV_HEADS=paged.kv_heads, DIM=paged.dim, PAGE=PAGE, WIDTH=self.width,
            GROUP_ROWS=self.group_rows, STAGES=3,
            CHUNK=parts_at_a_time(self.width * self.group_rows * paged.dim, self.splits), num_warps=4,
        )  # fmt: skip
        return out


@triton.jit
def _accept(ids, slots, state, out, stride, num_rows, WIDTH: tl.constexpr):
    first = tl.program_id(0) * WIDTH
    slot = tl.load(slots + first).to(tl.int64)
    if slot < 0:
        return
    own = state + slot * stride
    token = tl.load(out + first).to(tl.int64)
    count = 1
    is_right = 1
    tl.store(out + 3 * num_rows + first, 1)
    for i in tl.static_range(1, WIDTH):
        # The slot is -1 behind the last draft. What is drawn after a draft counts if the draft was drawn before it.
        is_draft = tl.load(slots + first + i) >= 0
        is_right = tl.where(is_draft & (tl.load(ids + first + i) == token), is_right, 0)
        tl.store(out + 3 * num_rows + first + i, is_right)
        token = tl.where(is_right == 1, tl.load(out + first + i).to(tl.int64), token)
        count += is_right
    tl.store(own + TOKEN_COLUMN, token)
    tl.store(own + COUNT_COLUMN, tl.load(own + COUNT_COLUMN) + count)
    tl.store(own + POSITION_COLUMN, tl.load(own + POSITION_COLUMN) + count)


def accept(ids: Tensor, slots: Tensor, state: Tensor, out: Tensor, *, width: int) -> None:
    """Take the tokens that were drawn after right drafts, and the one after the last of these; states move on.

    `ids` and `slots` [sessions * width] hold the last token of each session and its drafts, slot -1 where there is
    none. The fourth row of `out` [4, sessions * width] becomes 1 for tokens that are taken and 0 for others.

    width 4, ids [5, 7, 8, 9], drawn [7, 8, 6, 3] -> taken [1, 1, 1, 0]: 7 and 8 were right, 6 is drawn instead of 9
    """
    _accept[(len(slots) // width,)](ids, slots, state, out, state.stride(0), out.shape[1], WIDTH=width, num_warps=1)
