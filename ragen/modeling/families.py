"""Which architectures run in ways of our own, beside the modules of Hugging Face.

To add one, write a line of FAMILIES with the answers that you have checked. For the graph engine: its layers are those
that engine/graph/fused.py reads, and replies equal those of the native engine (tests/engine/families.py). For
training: the modules that fused_layers.py replaces compute what their replacements do (tests/modeling/
test_fused_layers.py). One does not follow from the other: a norm that adds one to its weight can be read for decoding,
and would be replaced by a wrong one in training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """What may run the layers of an architecture."""

    has_graph_decoder: bool = False
    """The graph engine."""
    has_fused_training: bool = False
    """The fused layers of updates on a GPU."""


FAMILIES = {
    # All four are the same decoder up to biases, norms of queries and keys, and windows, which are not decoded.
    "llama": Family(has_graph_decoder=True, has_fused_training=True),
    "mistral": Family(has_graph_decoder=True, has_fused_training=True),
    "qwen2": Family(has_graph_decoder=True, has_fused_training=True),
    "qwen3": Family(has_graph_decoder=True, has_fused_training=True),
}
"""By the `model_type` of the config; others run as Hugging Face wrote them."""


def family_of(config: Any) -> Family:
    return FAMILIES.get(config.model_type, Family())
