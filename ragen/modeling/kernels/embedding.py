"""Rows of the embedding: of prompt tokens, or of the last token of each session.

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
def _embed(chosen, state, weight, out, hidden, stride, FROM_STATE: tl.constexpr, SIZE: tl.constexpr):
    row = tl.program_id(0)
    if FROM_STATE:
        slot = tl.maximum(tl.load(chosen + row), 0).to(tl.int64)
        token = tl.load(state + slot * stride + TOKEN_COLUMN)
    else:
        token = tl.load(chosen + row)
    column = tl.arange(0, SIZE)
    x = tl.load(weight + token * hidden + column, mask=column < hidden)
    tl.store(out + row * hidden + column, x, mask=column < hidden)


def embed(ids: Tensor, weight: Tensor) -> Tensor:
    """Rows of the embedding, [tokens, hidden]."""
    return _embedded(ids, ids, weight, from_state=False)


def embed_last(slots: Tensor, state: Tensor, weight: Tensor) -> Tensor:
    """Rows of the embedding for the last token of each session, [rows, hidden]; slot -1 is padding."""
    return _embedded(slots, state, weight, from_state=True)


def _embedded(chosen: Tensor, state: Tensor, weight: Tensor, *, from_state: bool) -> Tensor:
    width = weight.shape[1]
    out = weight.new_empty(len(chosen), width)
    stride = state.stride(0) if from_state else 0
    _embed[(len(chosen),)](
        chosen, state, weight, out, width, stride, FROM_STATE=from_state, SIZE=triton.next_power_of_2(width)
    )
    return out
