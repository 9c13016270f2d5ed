"""Log-probs and entropies of the output layer."""

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
    """Instead of the logits: with p = softmax(z), g * (onehot - p) - h * p * (log p + H), over the temperature."""
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
