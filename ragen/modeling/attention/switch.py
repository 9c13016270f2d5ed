"""How a Hugging Face model is made to call an attention function of ours, and with what.

A registered name without a mask function gets no mask from the model, so no family needs code of its own; sliding
windows and soft caps arrive as arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from torch import Tensor
from transformers import AttentionInterface

from ragen.errors import EngineError

State = TypeVar("State")
MASKS = ("position_bias", "block_indices")
"""Arguments by which some families say what a query may look at, beside windows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Heads:
    """What a layer hands to its attention."""

    query: Tensor
    """[batch, head, queries, dim]"""
    key: Tensor
    """[batch, kv head, keys, dim]"""
    value: Tensor
    scaling: float
    window: int | None
    """Keys that a query may see, its own included; None: all before it."""
    softcap: float | None
    dropout: float
    module: Any
    """The layer's attention."""

    @property
    def is_last(self) -> bool:
        """They are of the last layer of the model."""
        return self.module.layer_idx == self.module.config.num_hidden_layers - 1

    @property
    def is_grouped(self) -> bool:
        """Several query heads share a key head."""
        return self.query.shape[1] != self.key.shape[1]


@contextmanager
def _switched(config: Any, name: str) -> Iterator[str]:
    """Within: models of this config call the attention of that name; yields the one before."""
    # A private attribute of transformers; nothing else touches it.
    before, config._attn_implementation_internal = config._attn_implementation_internal, name
    try:
        yield before
    finally:
        config._attn_implementation_internal = before


def plain_attention(config: Any) -> AbstractContextManager[str]:
    """Within: models of this config compute attention as their family wrote it down, with windows and soft caps."""
    return _switched(config, "eager")


class Attention(Generic[State]):
    """An attention function that is registered by name; the state says what it works on in the current pass."""

    def __init__(self, name: str, attend: Callable[[Heads, State], Tensor]) -> None:
        """`attend` returns [batch, queries, head, dim]."""
        self.name, self._attend = name, attend
        # A plain attribute, not a context variable: recomputed activations run on the threads of autograd.
        self._state: State | None = None
        AttentionInterface.register(name, self._call)

    @property
    def state(self) -> State:
        assert self._state is not None, f"{self.name} outside of its pass"
        return self._state

    @contextmanager
    def serving(self, config: Any, state: State) -> Iterator[str]:
        """Within: models of this config call this function; yields the name of the one they called before."""
        outer, self._state = self._state, state
        try:
            with _switched(config, self.name) as before:
                yield before
        finally:
            self._state = outer

    def _call(
        self,
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float | None = None,
        dropout: float = 0.0,
        sliding_window: int | None = None,
        softcap: float | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, None]:
        if kwargs.get("s_aux") is not None:
            raise EngineError(
                "Models with attention sinks are not supported; actor_rollout_ref.rollout.name=vllm can play them, but "
                "not train them."
            )
        own = {"attention_mask": attention_mask} | {name: kwargs.get(name) for name in MASKS}
        if given := [name for name, tensor in own.items() if tensor is not None]:
            raise EngineError(
                f"The attention of {type(module).__name__} takes {' and '.join(given)} of its own, which ours would "
                "ignore. Use another model; actor_rollout_ref.rollout.name=vllm may play this one, but not train it."
            )
        heads = Heads(
            query=query,
            key=key,
            value=value,
            scaling=query.shape[-1] ** -0.5 if scaling is None else scaling,
            window=sliding_window,
            softcap=softcap,
            dropout=dropout,
            module=module,
        )
        return self._attend(heads, self.state), None
