"""Log-probs and entropies of tokens, without ever holding more logits than needed.

With 150,000 words in the vocabulary the logits of 10,000 tokens are 6 GB in float32, and a naive backward pass keeps
several copies. The functions here go through the rows in chunks.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

CHUNK_SIZE = 2048
"""Rows of logits held at once."""


def head_logprobs(
    hidden: Tensor,  # [tokens, dim]
    head: Callable[[Tensor], Tensor],
    targets: Tensor,  # [tokens]
    *,
    temperature: float = 1.0,
    chunk_size: int = CHUNK_SIZE,
) -> tuple[Tensor, Tensor]:
    """Log-prob of each target, and the entropy where it was drawn, from hidden states; both [tokens] in float32.

    `head` maps hidden states to logits (the model's output layer, an adapter included). The logits of `chunk_size`
    tokens exist at a time, in the forward pass and, recomputed, in the backward pass. Logits are divided by
    `temperature`, as when the tokens were sampled.

    logits [0, 0], target 1 -> log-prob -.693, entropy .693
    """

    def chunk_logprobs(states: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        return _LogprobAndEntropy.apply(head(states).float() / temperature, chosen)  # type: ignore[return-value]

    if not len(hidden):
        empty = hidden.new_zeros(0, dtype=torch.float32)
        return empty, empty
    chunks = zip(hidden.split(chunk_size), targets.split(chunk_size))
    parts = [_checkpointed(chunk_logprobs, states, chosen) for states, chosen in chunks]
    logprobs, entropies = (torch.cat(column) for column in zip(*parts))
    return logprobs, entropies


class _LogprobAndEntropy(torch.autograd.Function):
    """Both numbers of each row from its logits, with the gradient written out.

    With p = softmax(z):   d logprob / dz = onehot(target) - p,   dH / dz = -p * (log p + H)

    Autograd would keep a copy of the logits for each intermediate; here the only ones are the logits and p.
    """

    @staticmethod
    def forward(ctx, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:  # [rows, vocab], [rows]
        log_total = torch.logsumexp(logits, dim=-1)
        chosen = torch.gather(logits, 1, targets.unsqueeze(1)).squeeze(1)
        # A logit of -inf (a masked word) has probability 0, and 0 * -inf counts as 0.
        probs = (logits - log_total.unsqueeze(1)).exp_()
        entropy = log_total - probs.mul_(logits).nan_to_num_(nan=0.0).sum(-1)
        ctx.save_for_backward(logits, targets, log_total, entropy)
        ctx.set_materialize_grads(False)
        return chosen - log_total, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_logprob: Tensor | None, grad_entropy: Tensor | None):
        logits, targets, log_total, entropy = ctx.saved_tensors
        log_probs = logits - log_total.unsqueeze(1)
        probs = log_probs.exp()
        grad = torch.zeros_like(logits)
        if grad_entropy is not None:
            slope = log_probs.add_(entropy.unsqueeze(1)).mul_(probs).nan_to_num_(nan=0.0)
            grad.addcmul_(slope, grad_entropy.unsqueeze(1), value=-1.0)
        if grad_logprob is not None:
            grad.addcmul_(probs, grad_logprob.unsqueeze(1), value=-1.0)
            grad.scatter_add_(1, targets.unsqueeze(1), grad_logprob.unsqueeze(1))
        return grad, None


def _checkpointed(function: Callable, *tensors: Tensor):
    """The result of the function; its intermediate tensors are not kept but recomputed for the gradient."""
    if not torch.is_grad_enabled():
        return function(*tensors)
    # No random numbers are drawn in there, so their state need not be saved.
    return checkpoint(function, *tensors, use_reentrant=False, preserve_rng_state=False)
