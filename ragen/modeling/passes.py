"""Passes of Hugging Face models over packed sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ragen.modeling.load import to_device
from ragen.modeling.packing import Packing


def masked_rows(mask: Tensor, packing: Packing) -> Tensor:
    """Packed index of the hidden state before each masked token, in row-major order of `mask` [batch, seq]."""
    rows, columns = mask.cpu().nonzero(as_tuple=True)
    device = packing.to_padded.device
    return packing.to_padded[to_device(rows, device), to_device(columns - 1, device)]


def masked_targets(ids: Sequence[Sequence[int]], mask: Tensor) -> Tensor:
    """The masked tokens, in row-major order."""
    parts = [np.array(row, np.int64)[np.flatnonzero(chosen[: len(row)])] for row, chosen in zip(ids, mask.numpy())]
    return torch.from_numpy(np.concatenate(parts))


def hidden_states(model: Any, ids: Tensor, packing: Packing) -> Tensor:
    """Last hidden states [tokens, dim] of packed ids [1, tokens]; inside `packed_attention`."""
    output = model.base_model(input_ids=ids, position_ids=packing.position_ids, use_cache=False)
    return output.last_hidden_state[0]


def logits_of(model: Any, hidden: Tensor) -> Tensor:
    """Logits [tokens, vocab] of hidden states, with the scale and the soft cap some families have."""
    logits = model.get_output_embeddings()(hidden)
    config = model.config
    if scaling := getattr(config, "logits_scaling", None):
        logits = logits / scaling
    if scale := getattr(config, "logit_scale", None):
        logits = logits * scale
    if cap := getattr(config, "final_logit_softcapping", None):
        logits = cap * torch.tanh(logits / cap)
    return logits
