"""Rotary embedding."""

# pyright: reportIndexIssue=false
# Without Triton installed, pyright takes a kernel for the plain function below its decorator.

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable


@triton.jit
def rotated(x, y, cos, sin, sign):
    """Rotary embedding of x, whose other half is y."""
    return x.to(tl.float32) * cos + sign * y.to(tl.float32) * sin


@triton.jit
def _rotate(
    x, out, cos, sin, token_stride, head_stride, sign,
    HEADS: tl.constexpr, SIZE: tl.constexpr, HALF: tl.constexpr
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head, column = tl.arange(0, SIZE), tl.arange(0, HALF)
    inside = (head < HEADS)[:, None]
    c = tl.load(cos + token * 2 * HALF + column).to(tl.float32)[None, :]
    s = sign * tl.load(sin + token * 2 * HALF + column).to(tl.float32)[None, :]
    source = x + token * token_stride + head[:, None] * head_stride + column[None, :]
    left = tl.load(source, mask=inside, other=0.0)
    right = tl.load(source + HALF, mask=inside, other=0.0)
    target = out + (token * HEADS + head[:, None]) * 2 * HALF + column[None, :]
    tl.store(target, rotated(left, right, c, s, -1.0).to(out.dtype.element_ty), mask=inside)
    tl.store(target + HALF, rotated(right, left, c, s, 1.0).to(out.dtype.element_ty), mask=inside)


def _launch(x: Tensor, cos: Tensor, sin: Tensor, sign: float) -> Tensor:
    num_tokens, num_heads, dim = x.shape
    x = x if x.stride(2) == 1 else x.contiguous()
    out = x.new_empty(x.shape)
    _rotate[(num_tokens,)](
        x, out, cos, sin, x.stride(0), x.stride(1), sign,
        HEADS=num_heads, SIZE=triton.next_power_of_2(num_heads), HALF=dim // 2,
    )  # fmt: skip
    return out


class _Rotary(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _launch(x, cos, sin, 1.0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor):
        cos, sin = ctx.saved_tensors
        return _launch(grad_out, cos, sin, -1.0), None, None


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:  # [tokens, heads, dim], [tokens, dim]
    """Rotary embedding; both halves of `cos` and of `sin` are the same."""
    return _Rotary.apply(x, cos, sin)  # type: ignore[return-value]
