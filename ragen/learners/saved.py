"""What a checkpoint holds of a learner: tensors that can be copied first, and how they become files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from ragen.learners.host_copies import HostCopies
from ragen.modeling.finite import check_finite
from ragen.modeling.lora import ADAPTER_FILE

OPTIMIZER_FILE = "optimizer.safetensors"


@dataclass(frozen=True, kw_only=True, slots=True)
class Saved:
    """A Hugging Face directory, and beside it what an exact resume needs."""

    model: Any
    """Its configuration is written. Its weights may have moved on since."""
    tokenizer: Any
    weights: Mapping[str, Tensor]
    """Whole weights; adapters are merged into them."""
    adapter: Mapping[str, Tensor] | None
    """All trained weights of a model with adapters."""
    optimizer: Mapping[str, Tensor] | None
    """Moments and master weights, where they are wanted."""

    def check(self, role: str) -> None:
        """Refuse what is not finite."""
        check_finite(self.weights, f"{role}/model.safetensors")
        check_finite(self.optimizer or {}, f"{role}/{OPTIMIZER_FILE}")

    def tensors(self, role: str) -> dict[str, Tensor]:
        """All tensors, by names that no other role has."""
        groups = {"weights": self.weights, "adapter": self.adapter or {}, "optimizer": self.optimizer or {}}
        return {f"{role}/{part}/{name}": each for part, group in groups.items() for name, each in group.items()}

    def copied(self, role: str, copies: HostCopies) -> Saved:
        """The same at this moment, whatever becomes of the model."""
        found = copies.copy(self.tensors(role))

        def part(name: str, group: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return {key: found[f"{role}/{name}/{key}"] for key in group}

        return replace(
            self,
            weights=part("weights", self.weights),
            adapter=None if self.adapter is None else part("adapter", self.adapter),
            optimizer=None if self.optimizer is None else part("optimizer", self.optimizer),
        )

    def write(self, folder: Path) -> None:
        self.model.save_pretrained(folder, state_dict=dict(self.weights))
        if self.adapter is not None:
            save_file(dict(self.adapter), folder / ADAPTER_FILE)
        self.tokenizer.save_pretrained(folder)
        if self.optimizer is not None:
            save_file(dict(self.optimizer), folder / OPTIMIZER_FILE)
