"""Whether a model that decodes with our cache, over several turns, computes what it computes on whole sequences."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ragen.engine.native.engine import NativeEngine
from ragen.modeling.attention.cached import Step
from ragen.modeling.self_test import BEGINNINGS, TAIL, centred, check_mixing, probe_of, refusing

WAY = "the native engine's cache"


def check_decoding(model: Any, *, is_trained: bool) -> None:
    """Refuse a model whose replies would not be drawn from its own probabilities; a trained one has been checked."""
    if not is_trained:
        check_mixing(model)
    with refusing(model, WAY), torch.inference_mode():
        probe = probe_of(model)
        probe.check(model, _tail_by_turns(model, probe.sequences), way=WAY)


def _tail_by_turns(model: Any, sequences: list[list[int]]) -> Tensor:
    """[sequences, tail - 1, vocab] A turn, a second one that ends with the tail's first token, the rest by decoding."""
    num_rows, longest = len(sequences), max(map(len, sequences))
    engine = NativeEngine(model, max_num_seqs=num_rows, max_model_len=longest, max_num_batched_tokens=longest**2)
    engine.cache.reserve(num_rows, longest)
    logits: list[Tensor] = []
    starts = [0] * num_rows
    for ends in ([size // 2 for size in BEGINNINGS], *([size + i for size in BEGINNINGS] for i in range(1, TAIL))):
        # Aligned to the right, as prompts are.
        width = max(end - start for start, end in zip(starts, ends, strict=True))
        ids = torch.zeros(num_rows, width, dtype=torch.long)
        positions = torch.full_like(ids, engine.cache.scratch)
        for row, (start, end) in enumerate(zip(starts, ends, strict=True)):
            ids[row, width - (end - start) :] = torch.tensor(sequences[row][start:end])
            positions[row, width - (end - start) :] = torch.arange(start, end)
        step = Step(rows=None, positions=positions.to(model.device), num_keys=max(ends))
        logits.append(engine.forward(ids.to(model.device), step))
        starts = ends
    return centred(torch.stack(logits[1:], dim=1))
