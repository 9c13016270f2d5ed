"""Hidden states and logits of Hugging Face models.

Tested in tests/modeling/attention/test_packed.py.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ragen.modeling.attention.masks import soft_cap
from ragen.modeling.packing import Packing


def hidden_states(model: Any, packing: Packing) -> Tensor:
    """Last hidden states [tokens, dim] of a packed row; inside `packed_attention`."""
    output = model.base_model(input_ids=packing.ids, position_ids=packing.position_ids, use_cache=False)
    return output.last_hidden_state[0]


def logits_of(model: Any, hidden: Tensor) -> Tensor:
    """Logits [tokens, vocab] of hidden states, with the scale and the soft cap some families have."""
    logits = model.get_output_embeddings()(hidden)
    config = model.config
    if scaling := getattr(config, "logits_scaling", None):
        logits = logits / scaling
    if scale := getattr(config, "logit_scale", None):
        logits = logits * scale
    return soft_cap(logits, getattr(config, "final_logit_softcapping", None))
