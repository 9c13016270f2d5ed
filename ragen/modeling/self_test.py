"""Whether a loaded model computes in our ways what it computes by itself, asked before anything is done with it.

Packed rows and kept caches are right for decoders whose tokens meet in attention only, and in attention that takes
ours. Convolutions, recurrences, and attention that a family keeps to itself would give other log-probs without a word.
No list of families is kept. Instead made-up sequences go through the model, for four questions:

- Does a sequence depend on its neighbours in a row? Its gradient at their tokens must be zero, exactly: rounding and
  the choice of experts play no part in that, and a recurrence that soon forgets is found all the same.
- Does attention get the sliding window of the configuration? What is made up is too short to notice.
- Does it draw random numbers in training mode, beside the dropout that loading switches off?
- Does a sequence come out as the model alone computes it? That finds what is missing: an earlier turn, positions, a
  layer before the logits. Here rounding plays a part.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ragen.errors import ModelUnavailable, RagenError
from ragen.modeling.attention.packed import PACKED, packed_attention
from ragen.modeling.attention.switch import plain_attention
from ragen.modeling.model import hidden_states, logits_of
from ragen.modeling.packing import MIN_SHARED, Packing, pack

BEGINNINGS = (MIN_SHARED, MIN_SHARED // 2)
"""Tokens before the tail of each sequence; the first beginning is long enough to be shared."""
TAIL = 5
"""Tokens that both sequences end with: few, because a short convolution spoils only what follows a seam."""
LIMITS = {torch.float32: 0.01, torch.bfloat16: 0.2, torch.float16: 0.2}
"""Largest error, as a share of what another context does to the same tokens: what is missing costs half of it and more.
Trained models in bfloat16 come to a tenth."""
ROUNDING = 4
"""So many times what the last bit of every embedding does, or the last bit of the results, is no error: random weights
can make a lot of the first, by other experts for example, and where context changes little the second is more."""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Two sequences with one tail behind different beginnings, and what the model by itself makes of the tail."""

    sequences: list[list[int]]
    alone: Tensor
    """[sequences, tail - 1, numbers] After each token of the tail but the last."""
    rounded: Tensor
    """The same with embeddings that are off by their last bit."""

    def check(self, model: Any, found: Tensor, *, way: str) -> None:
        """Refuse a model that makes something else of the tail in one of our ways."""
        if not self.alone.isfinite().all():
            return  # a fault of the weights, which is reported where they are used
        effect = _typical(self.alone[0] - self.alone[1])
        error = _typical(torch.where(found.isfinite(), found - self.alone, torch.inf))
        dtype = next(model.parameters()).dtype
        # No number of that size has finer steps, however little the embeddings do to it.
        rounding = torch.maximum(_typical(self.rounded - self.alone), torch.finfo(dtype).eps * _typical(self.alone))
        allowed = torch.maximum(LIMITS[dtype] * effect, ROUNDING * rounding)
        if (error > allowed).any():
            share = float((error / effect).max())
            raise refusal(model, way, f"results are off by {share:.2g} of what another context changes")


def _typical(differences: Tensor) -> Tensor:
    """[..., tokens, numbers] -> [...] Size of the median token: rounding may choose another expert for some token."""
    return differences.norm(dim=-1).median(dim=-1).values


def check_trainable(model: Any) -> None:
    """Refuse a model whose packed sequences would not be what they are alone."""
    check_mixing(model)
    check_chance(model)
    way = "packed sequences"
    with refusing(model, way), torch.no_grad():
        probe, packing = probe_of(model), packed(model)
        with packed_attention(model, packing):
            hidden = hidden_states(model, packing)[packing.sampled]
        found = hidden.float() if is_value_model(model) else centred(logits_of(model, hidden))
        probe.check(model, found.unflatten(0, (2, TAIL - 1)), way=way)


@torch.no_grad()
def check_chance(model: Any) -> None:
    """Refuse a model whose log-probs are a matter of chance in updates, and are none where it plays."""
    way, is_cuda = "updates", model.device.type == "cuda"
    with refusing(model, way), torch.random.fork_rng(devices=[model.device] if is_cuda else []):
        packing = packed(model)

        def run(is_training: bool) -> Tensor:
            model.train(is_training)
            try:
                with packed_attention(model, packing):
                    return hidden_states(model, packing)[packing.sampled]
            finally:
                model.eval()

        def state() -> Tensor:
            return torch.cuda.get_rng_state(model.device) if is_cuda else torch.random.get_rng_state()

        before, found = state(), run(True)
        # Drawing alone is harmless (layers that are dropped with a probability of 0), as are sums in another order.
        if not torch.equal(state(), before) and not torch.equal(found, run(False)):
            raise refusal(model, way, "it draws random numbers while it is trained")


def check_mixing(model: Any) -> None:
    """Refuse a model whose tokens meet elsewhere than in our attention."""
    way = "packed sequences"
    with refusing(model, way):
        packing = packed(model)
        leaves: list[Tensor] = []

        def watch(embedded: Tensor) -> Tensor:
            leaves.append(embedded.detach().requires_grad_())
            return leaves[-1].clone()  # a leaf may not be scaled in place, as some families do

        with torch.enable_grad(), changed_embeddings(model, watch), packed_attention(model, packing):
            hidden = hidden_states(model, packing)[packing.sampled].float()
            # Weighed, because the sum over normed states is always the same.
            weighed = hidden @ torch.linspace(-1, 1, hidden.shape[-1], device=hidden.device)
            (gradient,) = torch.autograd.grad(weighed.sum(), leaves)
            windows = {window for _, window in PACKED.state.masks}
        strangers = torch.ones(gradient.shape[1], dtype=torch.bool)
        strangers[torch.cat(packing.rows[1:])] = False
        if (gradient[0, strangers.to(gradient.device)].abs() > 0).any():
            raise refusal(model, way, "its tokens meet outside of the attention that keeps sequences apart")
        if (window := window_of(model.config)) and not any(windows):
            raise refusal(model, way, f"its sliding window of {window} tokens does not reach attention")


def probe_of(model: Any) -> Probe:
    """What a model by itself makes of the sequences."""
    sequences = made_up(model.config)[1:]
    alone = torch.stack([_tail_alone(model, ids) for ids in sequences])
    with changed_embeddings(model, _last_bit):
        rounded = torch.stack([_tail_alone(model, ids) for ids in sequences])
    return Probe(sequences=sequences, alone=alone, rounded=rounded)


@torch.no_grad()
def _tail_alone(model: Any, sequence: list[int]) -> Tensor:
    """[tail - 1, numbers] The model's own modules with plain attention on one sequence, without a cache."""
    given = {"input_ids": torch.tensor([sequence], device=model.device), "use_cache": False}
    with plain_attention(model.config):
        if is_value_model(model):
            return model.base_model(**given).last_hidden_state[0, -TAIL:-1].float()
        return centred(model(**given).logits[0, -TAIL:-1])


def _last_bit(embedded: Tensor) -> Tensor:
    signs = torch.ones_like(embedded)
    signs[..., ::2] = -1
    return embedded * (1 + torch.finfo(embedded.dtype).eps * signs)


def is_value_model(model: Any) -> bool:
    """Its head starts at zero, so hidden states are compared."""
    return model.get_output_embeddings() is None


def centred(logits: Tensor) -> Tensor:
    """In float32, around zero: a constant changes no log-prob."""
    return logits.float() - logits.float().mean(dim=-1, keepdim=True)


def made_up(config: Any) -> list[list[int]]:
    """A stranger and the two sequences, the same for all models with that vocabulary.

    The stranger begins like the first sequence and goes on otherwise. Tokens come from the first half of the
    vocabulary: the last rows of an embedding often have none.
    """
    special = {getattr(config, f"{name}_token_id", None) for name in ("pad", "bos")}
    tokens = [token for token in range(config.vocab_size // 2 + 1) if token not in special]
    draw = random.Random(0)
    first, second, tail = (draw.choices(tokens, k=count) for count in (*BEGINNINGS, TAIL))
    return [first + first[::-1], first + tail, second + tail]


def packed(model: Any) -> Packing:
    """What was made up in one row; of both sequences the tail without its first token counts as sampled."""
    rows = made_up(model.config)
    mask = torch.zeros(len(rows), max(map(len, rows)))
    for i in (1, 2):
        mask[i, len(rows[i]) - TAIL + 1 : len(rows[i])] = 1
    return pack(rows, model.device, mask=mask)


def window_of(config: Any) -> int | None:
    """The sliding window that some layer must have; None where all may see everything."""
    window = config.sliding_window if hasattr(type(config), "sliding_window") else None
    kinds = getattr(config, "layer_types", None)
    is_used = kinds is None or "sliding_attention" in kinds
    return window if window and is_used and window < config.max_position_embeddings else None


@contextmanager
def changed_embeddings(model: Any, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Within: embedded tokens go on as a function makes them."""
    hook = model.get_input_embeddings().register_forward_hook(lambda module, inputs, output: change(output))
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def refusing(model: Any, way: str) -> Iterator[None]:
    """Within: whatever a model that does not know our ways makes of them is a refusal."""
    try:
        yield
    except (RagenError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise refusal(model, way, f"that ends with {reason}") from error


def refusal(model: Any, way: str, reason: str) -> ModelUnavailable:
    return ModelUnavailable(
        f"{type(model).__name__} ({model.config.model_type}) cannot be run here: with {way} it must compute what it "
        f"computes on one whole sequence at a time, but {reason}. Use a decoder whose tokens meet in attention only, "
        "such as those of docs/models.md. If vLLM knows this one, `ragen eval` plays it with "
        "actor_rollout_ref.rollout.name=vllm."
    )
