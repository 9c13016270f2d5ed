"""GPU kernels of the update: what a decoder layer does beside matrix products and attention, and the output layer's
log-probs, each with its gradient. Importing this module needs Triton.
"""

# pyright: reportIndexIssue=false
# Without Triton installed, pyright takes a kernel for the plain function below its decorator.

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

NUM_PROGRAMS = 1024
"""Of the gradient of a norm; each sums its rows' part of the gain's gradient."""


# --- root mean square norm


@triton.jit
def _norm(x, gain, out, inverse, num_rows, width, eps, ROWS: tl.constexpr, SIZE: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, SIZE)
    inside = (row < num_rows)[:, None] & (column < width)[None, :]
    place = row.to(tl.int64)[:, None] * width + column[None, :]
    raw = tl.load(x + place, mask=inside, other=0.0)
    values = raw.to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, axis=1) / width + eps)
    normed = (values * scale[:, None]).to(raw.dtype)  # rounded where the model's own norm rounds
    tl.store(out + place, tl.load(gain + column, mask=column < width, other=0.0)[None, :] * normed, mask=inside)
    tl.store(inverse + row, scale, mask=row < num_rows)


@triton.jit
def _norm_backward(
    grad_out, x, gain, inverse, grad_x, partial, num_rows, width, ROWS: tl.constexpr, SIZE: tl.constexpr
):
    column = tl.arange(0, SIZE)
    is_column = column < width
    weight = tl.load(gain + column, mask=is_column, other=0.0).to(tl.float32)
    total = tl.zeros([SIZE], tl.float32)
    for block in range(tl.program_id(0), tl.cdiv(num_rows, ROWS), tl.num_programs(0)):
        row = block * ROWS + tl.arange(0, ROWS)
        inside = (row < num_rows)[:, None] & is_column[None, :]
        place = row.to(tl.int64)[:, None] * width + column[None, :]
        scale = tl.load(inverse + row, mask=row < num_rows, other=0.0)[:, None]
        normed = tl.load(x + place, mask=inside, other=0.0).to(tl.float32) * scale
        grad = tl.load(grad_out + place, mask=inside, other=0.0).to(tl.float32)
        total += tl.sum(grad * normed, axis=0)
        grad = grad * weight[None, :]
        grad = scale * (grad - normed * (tl.sum(grad * normed, axis=1) / width)[:, None])
        tl.store(grad_x + place, grad.to(grad_x.dtype.element_ty), mask=inside)
    tl.store(partial + tl.program_id(0) * width + column, total, mask=is_column)


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        (num_rows, width), out = rows.shape, torch.empty_like(rows)
        inverse = torch.empty(num_rows, device=x.device)
        blocks = _row_blocks(width)
        _norm[(triton.cdiv(num_rows, blocks["ROWS"]),)](rows, gain, out, inverse, num_rows, width, eps, **blocks)
        ctx.save_for_backward(rows, gain, inverse)
        return out.view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor):
        rows, gain, inverse = ctx.saved_tensors
        (num_rows, width), grad_x = rows.shape, torch.empty_like(rows)
        blocks = _row_blocks(width)
        num_programs = min(NUM_PROGRAMS, triton.cdiv(num_rows, blocks["ROWS"]))
        partial = torch.empty(num_programs, width, device=rows.device)
        grad_rows = grad_out.reshape(rows.shape).contiguous()
        _norm_backward[(num_programs,)](grad_rows, rows, gain, inverse, grad_x, partial, num_rows, width, **blocks)
        return grad_x.view(grad_out.shape), partial.sum(0).to(gain.dtype), None


def _row_blocks(width: int) -> dict[str, int]:
    """Shape of a block of whole rows."""
    size = triton.next_power_of_2(width)
    return {"ROWS": max(1, 1024 // size), "SIZE": size, "num_warps": 8 if size >= 4096 else 4}


def rms_norm(x: Tensor, gain: Tensor, eps: float) -> Tensor:  # [..., width]
    """The model's norm over the last dimension."""
    return _RmsNorm.apply(x, gain, eps)  # type: ignore[return-value]


# --- rotary embedding


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
    left = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    right = tl.load(source + HALF, mask=inside, other=0.0).to(tl.float32)
    target = out + (token * HEADS + head[:, None]) * 2 * HALF + column[None, :]
    tl.store(target, (left * c - right * s).to(out.dtype.element_ty), mask=inside)
    tl.store(target + HALF, (right * c + left * s).to(out.dtype.element_ty), mask=inside)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor, sign: float) -> Tensor:
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
        return _rotated(x, cos, sin, 1.0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor):
        cos, sin = ctx.saved_tensors
        return _rotated(grad_out, cos, sin, -1.0), None, None


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:  # [tokens, heads, dim], [tokens, dim]
    """Rotary embedding; both halves of `cos` and of `sin` are the same."""
    return _Rotary.apply(x, cos, sin)  # type: ignore[return-value]


# --- gated activation


@triton.jit
def _silu_mul(gate, up, out, num_cells, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < num_cells
    raw, u = tl.load(gate + place, mask=inside, other=0.0), tl.load(up + place, mask=inside, other=0.0)
    x = raw.to(tl.float32)
    tl.store(out + place, (x / (1 + tl.exp(-x))).to(raw.dtype) * u, mask=inside)


@triton.jit
def _silu_mul_backward(grad_out, gate, up, grad_gate, grad_up, num_cells, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < num_cells
    grad = tl.load(grad_out + place, mask=inside, other=0.0).to(tl.float32)
    raw = tl.load(gate + place, mask=inside, other=0.0)
    x = raw.to(tl.float32)
    u = tl.load(up + place, mask=inside, other=0.0).to(tl.float32)
    sigmoid = 1 / (1 + tl.exp(-x))
    tl.store(grad_gate + place, (grad * u * sigmoid * (1 + x * (1 - sigmoid))).to(raw.dtype), mask=inside)
    tl.store(grad_up + place, (grad * x * sigmoid).to(raw.dtype), mask=inside)


class _SiluMul(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        gate, up = gate.contiguous(), up.contiguous()
        out = torch.empty_like(gate)
        _silu_mul[(triton.cdiv(out.numel(), 2048),)](gate, up, out, out.numel(), BLOCK=2048)
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


# --- log-probs and entropies of the output layer


@triton.jit
def _row_stats(logits, targets, logprob, entropy, log_total, vocab, temperature, BLOCK: tl.constexpr):
    """Of one row in one pass: a running maximum m, the sum of exp(z - m) and that of z * exp(z - m)."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    highest = tl.full([BLOCK], -1e30, tl.float32)
    total, weighted = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    for start in range(0, vocab, BLOCK):
        inside = start + column < vocab
        z = tl.load(logits + row * vocab + start + column, mask=inside, other=-1e30).to(tl.float32) / temperature
        new_highest = tl.maximum(highest, z)
        shrink, power = tl.exp(highest - new_highest), tl.where(inside, tl.exp(z - new_highest), 0.0)
        total, weighted = total * shrink + power, weighted * shrink + power * z
        highest = new_highest
    top = tl.max(highest, axis=0)
    shrink = tl.exp(highest - top)
    whole = tl.sum(total * shrink, axis=0)
    log_whole = top + tl.log(whole)
    chosen = tl.load(logits + row * vocab + tl.load(targets + row)).to(tl.float32) / temperature
    tl.store(logprob + row, chosen - log_whole)
    tl.store(entropy + row, log_whole - tl.sum(weighted * shrink, axis=0) / whole)
    tl.store(log_total + row, log_whole)


@triton.jit
def _logit_grads(
    logits, targets, log_total, entropy, grad_logprob, grad_entropy, vocab, temperature, BLOCK: tl.constexpr
):
    """In the place of the logits: with p = softmax(z), g * (onehot - p) - h * p * (log p + H), over the temperature."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < vocab
    cell = logits + row * vocab + column
    raw = tl.load(cell, mask=inside, other=0.0)
    g, h = tl.load(grad_logprob + row), tl.load(grad_entropy + row)
    logp = raw.to(tl.float32) / temperature - tl.load(log_total + row)
    p = tl.exp(logp)
    grad = tl.where(column == tl.load(targets + row), g, 0.0) - g * p - h * p * (logp + tl.load(entropy + row))
    tl.store(cell, (grad / temperature).to(raw.dtype), mask=inside)


class _HeadLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float, chunk_size: int):
        logprobs, entropies, log_totals = (torch.empty(len(hidden), device=hidden.device) for _ in range(3))
        outputs = zip(*(each.split(chunk_size) for each in (hidden, targets, logprobs, entropies, log_totals)))
        for states, chosen, *results in outputs:
            logits = states @ weight.T
            _row_stats[(len(logits),)](logits, chosen, *results, len(weight), temperature, BLOCK=4096, num_warps=8)
        ctx.save_for_backward(hidden, weight, targets, log_totals, entropies)
        ctx.temperature, ctx.chunk_size = temperature, chunk_size
        return logprobs, entropies

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_logprobs: Tensor, grad_entropies: Tensor):
        hidden, weight, *others = ctx.saved_tensors
        grad_hidden = torch.empty_like(hidden)
        grad_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        grads = (grad_logprobs.contiguous(), grad_entropies.contiguous())
        inputs = zip(*(each.split(ctx.chunk_size) for each in (hidden, grad_hidden, *others, *grads)))
        for states, grad_states, *rest in inputs:
            logits = states @ weight.T
            grid = (len(logits), triton.cdiv(len(weight), 4096))
            _logit_grads[grid](logits, *rest, len(weight), ctx.temperature, BLOCK=4096, num_warps=8)
            torch.mm(logits, weight, out=grad_states)
            if grad_weight is not None:
                grad_weight.addmm_(logits.T, states)
        return grad_hidden, grad_weight, None, None, None


def head_logprobs(
    hidden: Tensor, weight: Tensor, targets: Tensor, *, temperature: float, chunk_size: int
) -> tuple[Tensor, Tensor]:
    """Log-prob of each target and the entropy where it was drawn, [tokens] in float32, from hidden states
    [tokens, dim] and the output layer [vocab, dim]; the logits of `chunk_size` tokens exist at a time."""
    return _HeadLogprobs.apply(hidden, weight, targets, temperature, chunk_size)  # type: ignore[return-value]
