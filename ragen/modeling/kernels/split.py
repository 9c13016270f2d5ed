"""A session's tokens in parts, each a program of its own: few sessions alone would leave most of a GPU idle.

Tested in tests/modeling/kernels/test_attention.py and test_verify.py.
"""

# pyright: reportIndexIssue=false
# Without Triton installed, pyright takes a kernel for the plain function below its decorator.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def parts_of(num_tiles, num_splits):
    """Tiles of each part of a session, and how many parts hold any; at most `num_splits`, and never none."""
    share = tl.maximum((num_tiles + num_splits - 1) // num_splits, 1)
    return share, tl.maximum((num_tiles + share - 1) // share, 1)


@triton.jit
def is_last_part(
    sums, top, total, partial, stats, counter, index, split, num_parts,
    row, is_wanted, ROWS: tl.constexpr, DIM: tl.constexpr,
):  # fmt: skip
    """Store what a part has found out; true for the one program that comes last, and may read what all have stored.

    `index` counts the parts of the sessions before; of the rows [ROWS, 1] that are not wanted no sums are stored.
    """
    cell = row[:, None] * DIM + tl.arange(0, DIM)[None, :]
    tl.store(partial + (index + split) * ROWS * DIM + cell, sums, mask=is_wanted)
    tl.store(stats + (index + split) * 2 * ROWS + row, top)
    tl.store(stats + (index + split) * 2 * ROWS + ROWS + row, total)
    tl.debug_barrier()  # every thread's part is written before the count says so
    is_last = tl.atomic_add(counter, 1, sem="acq_rel") == num_parts - 1
    if is_last:
        tl.store(counter, 0)  # for the next launch
    return is_last


@triton.jit
def joined_parts(
    partial, stats, index, num_parts, row, is_wanted, ROWS: tl.constexpr, DIM: tl.constexpr, CHUNK: tl.constexpr
):
    """What all parts together attend to, [ROWS, DIM], always joined in the same order.

    CHUNK parts are fetched at a time: one after the other they would wait for memory as often as there are parts.
    """
    cell = row[:, None] * DIM + tl.arange(0, DIM)[None, :]
    top = tl.full([ROWS], -1e30, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    sums = tl.zeros([ROWS, DIM], tl.float32)
    for first in range(0, num_parts, CHUNK):
        for offset in tl.static_range(CHUNK):
            part = first + offset
            is_part = part < num_parts
            own = stats + (index + part) * 2 * ROWS + row
            source = partial + (index + part) * ROWS * DIM + cell
            part_top = tl.load(own, mask=is_part, other=-1e30, cache_modifier=".cg")
            part_total = tl.load(own + ROWS, mask=is_part, other=0.0, cache_modifier=".cg")
            part_sums = tl.load(source, mask=is_part & is_wanted, other=0.0, cache_modifier=".cg")
            new_top = tl.maximum(top, part_top)
            shrink, weight = tl.exp2(top - new_top), tl.exp2(part_top - new_top)
            total = total * shrink + part_total * weight
            sums = sums * shrink[:, None] + part_sums * weight[:, None]
            top = new_top
    return sums / total[:, None]


def parts_at_a_time(cells: int, num_splits: int) -> int:
    """Parts of so many cells that a program of 128 threads fetches at once: 32 numbers for each thread."""
    return max(1, min(4096 // cells, triton.next_power_of_2(num_splits)))
