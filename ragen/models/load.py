"""Loading models and tokenizers, in the precision that fits the device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ragen.errors import ModelUnavailable


def default_device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def load_tokenizer(path: Path | str) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError) as error:
        raise ModelUnavailable(f"The tokenizer of {str(path)!r} cannot be loaded: {error}") from error


def load_model(path: Path | str, *, device: str | None = None) -> Any:
    """A causal language model in evaluation mode: bfloat16 on a GPU, float32 on a CPU. Weights must be safetensors."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    device = device or default_device()
    # bfloat16 is emulated on most CPUs, and then far slower than float32.
    dtype = torch.bfloat16 if device.startswith("cuda") else torch.float32
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, use_safetensors=True)
    except (OSError, ValueError) as error:
        raise ModelUnavailable(f"The model {str(path)!r} cannot be loaded: {error}") from error
    return model.to(device).eval()
