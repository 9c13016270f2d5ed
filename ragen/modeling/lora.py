"""Low-rank adapters by peft, injected into the model itself: everything else sees an ordinary model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from ragen.config.schema import LoraConfig
from ragen.config.strict import did_you_mean
from ragen.errors import ConfigError, FileError, needing_extra
from ragen.files import read_tensor_header

ADAPTER_FILE = "adapter.safetensors"


def add_adapter(model: Any, config: LoraConfig, *, seed: int, trained_heads: tuple[str, ...] = ()) -> None:
    """Freeze the model and give its linear layers trainable low-rank updates; `trained_heads` stay trainable.

    The updates start at zero, as a product of zeros and random numbers, which `seed` fixes.
    """
    with needing_extra("lora", "lora.rank > 0 needs peft"):
        from peft import LoraConfig as PeftConfig
        from peft import inject_adapter_in_model

    targets = find_targets(model, config.target_modules)
    model.requires_grad_(False)
    adapter = PeftConfig(
        r=config.rank,
        lora_alpha=config.alpha,  # type: ignore[arg-type]
        target_modules=targets,
        exclude_modules=list(trained_heads) or None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        inject_adapter_in_model(adapter, model)
    for name, weight in model.named_parameters():
        weight.requires_grad_("lora_" in name or any(name.startswith(f"{head}.") for head in trained_heads))


def find_targets(model: Any, targets: str | Sequence[str]) -> str | list[str]:
    """The modules that get an adapter; names that the model does not have are refused, and peft would take some."""
    if targets == "all-linear":
        return "all-linear"
    modules = {name: module for name, module in model.named_modules() if name}
    wanted = [targets] if isinstance(targets, str) else list(targets)
    for target in wanted:
        if not any(name == target or name.endswith(f".{target}") for name in modules):
            linear = {name.rpartition(".")[2] for name, found in modules.items() if isinstance(found, torch.nn.Linear)}
            raise ConfigError(
                f"lora.target_modules: the model has no module {target!r}.{did_you_mean(target, linear)} "
                f"Choose from {', '.join(sorted(linear))}, or all-linear."
            )
    return wanted


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

    adapted: dict[str, Any] = {
        f"{name}.weight": module for name, module in model.named_modules() if isinstance(module, LoraLayer)
    }
    merged = plain_state(model)
    for name, module in adapted.items():  # one at a time: all changes together are as large as the model
        weight = merged[name]
        delta = module.get_delta_weight(module.active_adapters[0])
        merged[name] = (weight.float() + delta.float()).to(weight.dtype)
        del delta
    return merged


def plain_state(model: Any) -> dict[str, Tensor]:
    """The weights of the plain model, by their names in it, without what adapters add."""
    return {
        name.replace(".base_layer.", "."): weight for name, weight in model.state_dict().items() if "lora_" not in name
    }


def adapter_state(model: Any) -> dict[str, Tensor]:
    """All trainable weights, for an exact resume."""
    return {name: p.detach().contiguous() for name, p in model.named_parameters() if p.requires_grad}


def save_adapter(model: Any, folder: Path) -> None:
    save_file(adapter_state(model), folder / ADAPTER_FILE)


@torch.no_grad()
def load_adapter(model: Any, folder: Path) -> None:
    """The inverse of `save_adapter`."""
    path = folder / ADAPTER_FILE
    read_tensor_header(path)  # says so where the file is cut
    tensors = load_file(path)
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            if name not in tensors or tensors[name].shape != weight.shape:
                raise FileError(
                    f"{path} has no {name} of shape {tuple(weight.shape)}. It belongs to another model or rank."
                )
            weight.copy_(tensors[name])
