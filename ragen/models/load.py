"""Loading models and tokenizers, in the precision that fits the device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragen.errors import ModelUnavailable

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def default_device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def precision(device: str) -> Any:
    """The torch dtype of models on a device: bfloat16 is emulated on most CPUs, and then far slower than float32."""
    import torch

    return torch.bfloat16 if device.startswith("cuda") else torch.float32


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the CPU on a device; the GPU need not have come to it for the CPU to go on."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def load_tokenizer(path: Path | str) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError) as error:
        raise ModelUnavailable(f"The tokenizer of {str(path)!r} cannot be loaded: {error}") from error


def load_model(path: Path | str, *, device: str | None = None, is_trained: bool = False) -> Any:
    """A causal language model in evaluation mode: bfloat16 on a GPU, float32 on a CPU. Weights must be safetensors."""
    from transformers import AutoModelForCausalLM

    return _load(AutoModelForCausalLM, path, device=device, is_trained=is_trained)


def load_value_model(path: Path | str, *, device: str | None = None) -> Any:
    """The same architecture with one number per token as output; its head starts at zero when `path` has none."""
    import torch
    from transformers import AutoModelForTokenClassification

    model = _load(AutoModelForTokenClassification, path, device=device, is_trained=True, num_labels=1)
    if not _is_value_model(path):
        head = next(module for module in reversed(list(model.modules())) if getattr(module, "out_features", 0) == 1)
        torch.nn.init.zeros_(head.weight)
        if head.bias is not None:
            torch.nn.init.zeros_(head.bias)
    return model


def _is_value_model(path: Path | str) -> bool:
    from transformers import AutoConfig

    architectures = AutoConfig.from_pretrained(path).architectures or []
    return any(name.endswith("ForTokenClassification") for name in architectures)


def _load(auto_class: Any, path: Path | str, *, device: str | None, is_trained: bool, **changes: Any) -> Any:
    from transformers import AutoConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    device = device or default_device()
    dtype = precision(device)
    verbosity = logging.get_verbosity()
    try:
        config = AutoConfig.from_pretrained(path, **changes)
        if is_trained:
            # With dropout, the log-probs of an update would differ from those of the rollout.
            for name, value in config.to_dict().items():
                if "drop" in name and isinstance(value, float):
                    setattr(config, name, 0.0)
        logging.set_verbosity_error()  # a value head that is new is no news
        model: Any = auto_class.from_pretrained(path, config=config, dtype=dtype, use_safetensors=True)
    except (OSError, ValueError) as error:
        raise ModelUnavailable(f"The model {str(path)!r} cannot be loaded: {error}") from error
    finally:
        logging.set_verbosity(verbosity)
    if is_trained:
        prepare_for_training(model)
    return model.to(device).eval()


def prepare_for_training(model: Any) -> None:
    """Make updates a function of the weights alone: no dropout, and memory of the model's own."""
    import torch

    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):  # classifiers drop a tenth where their config is silent
            module.p = 0.0
    # Loaded weights lie in the mapped file, wherever its header ends. Matrix products round differently with the
    # alignment of their operands, and a resumed run, which reads another file, would drift from the straight one.
    for weight in model.parameters():
        weight.data = weight.data.clone()
