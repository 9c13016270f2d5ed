"""Low-rank adapters by peft, injected into the model itself: everything else sees an ordinary model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from ragen.config.schema import LoraConfig
from ragen.errors import MissingExtra

ADAPTER_FILE = "adapter.safetensors"


def add_adapter(model: Any, config: LoraConfig, *, seed: int, trained_heads: tuple[str, ...] = ()) -> None:
    """Freeze the model and give its linear layers trainable low-rank updates; `trained_heads` stay trainable.

    The updates start at zero, as a product of zeros and random numbers, which `seed` fixes.
    """
    try:
        from peft import LoraConfig as PeftConfig
        from peft import inject_adapter_in_model
    except ImportError as error:
        raise MissingExtra("lora.rank > 0 needs peft. Run: pip install -e '.[lora]'") from error

    targets = config.target_modules
    model.requires_grad_(False)
    adapter = PeftConfig(
        r=config.rank,
        lora_alpha=config.alpha,  # type: ignore[arg-type]
        target_modules=targets if isinstance(targets, str) else list(targets),
        exclude_modules=list(trained_heads) or None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        inject_adapter_in_model(adapter, model)
    for name, weight in model.named_parameters():
        weight.requires_grad_("lora_" in name or any(name.startswith(f"{head}.") for head in trained_heads))


def has_adapter(model: Any) -> bool:
    return any("lora_" in name for name, _ in model.named_parameters())


@contextmanager
def without_adapter(model: Any) -> Iterator[None]:
    """Within: the model computes with its frozen weights only."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers = [module for module in model.modules() if isinstance(module, BaseTunerLayer)]
    for layer in layers:
        layer.enable_adapters(False)
    # Switching adapters on and off also switches their gradients; that is restored below.
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


@torch.no_grad()
def merged_state(model: Any) -> dict[str, Tensor]:
    """The weights of the plain model with the adapters added in; the model itself is not touched."""
    from peft.tuners.lora import LoraLayer

    deltas = {
        name: module.get_delta_weight(module.active_adapters[0])  # type: ignore[attr-defined]
        for name, module in model.named_modules()
        if isinstance(module, LoraLayer)
    }
    merged: dict[str, Tensor] = {}
    for name, weight in model.state_dict().items():
        if "lora_" in name:
            continue
        plain = name.replace(".base_layer.", ".")
        layer = plain.removesuffix(".weight")
        delta = deltas.get(layer) if name.endswith(".weight") else None
        merged[plain] = weight if delta is None else (weight.float() + delta.float()).to(weight.dtype)
    return merged


def save_adapter(model: Any, folder: Path) -> None:
    """All trainable weights, for an exact resume."""
    trained = {name: p.detach().contiguous() for name, p in model.named_parameters() if p.requires_grad}
    save_file(trained, folder / ADAPTER_FILE)


@torch.no_grad()
def load_adapter(model: Any, folder: Path) -> None:
    """The inverse of `save_adapter`."""
    tensors = load_file(folder / ADAPTER_FILE)
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            weight.copy_(tensors[name])
