"""The frozen policy that a KL term holds on to."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ragen.modeling.lora import without_adapter
from ragen.modeling.team import SOLO, Team


class Reference:
    """A model that does not change: one of its own, or, with LoRA, the actor's without its adapter."""

    def __init__(self, model: Any, *, is_adapter_off: bool = False, team: Team = SOLO) -> None:
        self.model, self.is_adapter_off, self.team = model, is_adapter_off, team

    def serving(self) -> AbstractContextManager[None]:
        """Within: `model` computes as the reference."""
        return without_adapter(self.model) if self.is_adapter_off else nullcontext()
