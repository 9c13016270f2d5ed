"""Rows of the embedding, of the last token of each session.

Tested in tests/engine/test_graph_engine_interpreted.py.
"""

# pyright: reportIndexIssue=false
# Without Triton installed, pyright takes a kernel for the plain function below its decorator.

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ragen.modeling.kernels.session import TOKEN_COLUMN


@triton.jit
def _embed(slots, state, weight, out, hidden, stride, SIZE: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, SIZE)
    slot = tl.maximum(tl.load(slots + row), 0).to(tl.int64)
    token = tl.load(state + slot * stride + TOKEN_COLUMN)
    x = tl.load(weight + token * hidden + column, mask=column < hidden)
    tl.store(out + row * hidden + column, x, mask=column < hidden)


def embed_last(slots: Tensor, state: Tensor, weight: Tensor) -> Tensor:
    """Rows of the embedding for the last token of each session, [rows, hidden]; slot -1 is padding."""
    width = weight.shape[1]
    out = weight.new_empty(len(slots), width)
    _embed[(len(slots),)](slots, state, weight, out, width, state.stride(0), SIZE=triton.next_power_of_2(width))
    return out
