"""Loading models and tokenizers, in the precision that fits the device.

Tested in tests/models/test_folder.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragen.errors import ModelUnavailable
from ragen.files import read_object
from ragen.modeling.host_memory import free_host_memory

VALUE_HEADS = ("score.", "classifier.")
OLD_HEAD = ("lm_head.", "embed_out.")
LEAST_USED = 0.5
"""Share of the rows of an embedding that have a token; real models pad theirs by a few per cent."""
LONGEST_REASON = 400

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def default_device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def precision(device: str, dtype: str = "auto") -> Any:
    """The torch dtype of models on a device: bfloat16 is emulated on most CPUs, and then far slower than float32."""
    import torch

    is_short = device.startswith("cuda") if dtype == "auto" else dtype == "bfloat16"
    return torch.bfloat16 if is_short else torch.float32


def free_memory(device: torch.device) -> float:
    """Bytes that this process may still take on a device, with those that PyTorch keeps for the next tensor."""
    import torch

    if device.type == "cuda":
        return (
            torch.cuda.mem_get_info(device)[0]
            + torch.cuda.memory_reserved(device)
            - torch.cuda.memory_allocated(device)
        )
    return free_host_memory()


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the CPU on a device; the CPU does not wait for the GPU."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def load_tokenizer(path: Path | str) -> Any:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    except Exception as error:  # whatever a library makes of a folder's content
        raise ModelUnavailable(f"The tokenizer of {str(path)!r} cannot be loaded: {_reason(error)}") from error
    if (Path(path) / "config.json").is_file():
        check_vocabulary(tokenizer, read_object(Path(path) / "config.json").get("vocab_size"))
    return tokenizer


def check_vocabulary(tokenizer: Any, num_rows: Any) -> None:
    """Refuse a tokenizer that belongs to another model than an embedding of `num_rows` tokens.

    Embeddings are padded to round numbers, so a few rows without a token are normal. So are special tokens without
    a row that only a sister model reads (Gemma 3's image in the text model): no text of a prompt becomes one.
    """
    if not isinstance(num_rows, int):
        return
    added = tokenizer.added_tokens_decoder
    spare = {index for index, token in added.items() if token.special and index >= num_rows}
    spare -= {tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id}
    if not LEAST_USED * num_rows <= len(tokenizer) - len(spare) <= num_rows:
        raise ModelUnavailable(
            f"The tokenizer of {tokenizer.name_or_path!r} has {len(tokenizer)} tokens, the model's embedding has "
            f"{num_rows}. They belong to different models: copy the tokenizer from the original model."
        )


def load_model(path: Path | str, *, device: str | None = None, is_trained: bool = False, dtype: str = "auto") -> Any:
    """A causal language model in evaluation mode: bfloat16 on a GPU, float32 on a CPU, unless `dtype` names another.

    Weights must be safetensors.
    """
    from transformers import AutoModelForCausalLM

    return _load(AutoModelForCausalLM, path, device=device, is_trained=is_trained, dtype=dtype)


def load_value_model(path: Path | str, *, device: str | None = None) -> Any:
    """The same architecture with one number per token as output; its head starts at zero when `path` has none."""
    import torch

    config = _read_config(path)
    has_head = any(name.endswith("ForTokenClassification") for name in config.architectures or [])
    new = () if has_head else VALUE_HEADS
    model = _load(_value_class(config), path, device=device, is_trained=True, new_heads=new, num_labels=1)
    if not has_head:
        head = next(module for module in reversed(list(model.modules())) if getattr(module, "out_features", 0) == 1)
        torch.nn.init.zeros_(head.weight)
        if head.bias is not None:
            torch.nn.init.zeros_(head.bias)
    return model


def _value_class(config: Any) -> Any:
    """transformers' token classifier of an architecture; where it has none (Gemma 3), one made like the others."""
    from transformers import AutoModelForCausalLM, AutoModelForTokenClassification, PreTrainedModel
    from transformers.modeling_layers import GenericForTokenClassification

    known: Any = AutoModelForCausalLM._model_mapping
    if type(config) in AutoModelForTokenClassification._model_mapping or type(config) not in known:
        return AutoModelForTokenClassification
    parents = known[type(config)].__mro__[1:]
    family = next(parent for parent in parents if issubclass(parent, PreTrainedModel))
    name = type(config).__name__.removesuffix("Config") + "ForTokenClassification"
    fields = {"config_class": type(config), "__annotations__": {"config": type(config)}, "__module__": __name__}
    return type(name, (GenericForTokenClassification, family), fields)


def _read_config(path: Path | str, **changes: Any) -> Any:
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(path, trust_remote_code=False, **changes)
    except Exception as error:  # whatever a library makes of a folder's content
        raise ModelUnavailable(f"The model {str(path)!r} cannot be loaded: {_reason(error)}") from error
    if config.get_text_config() is not config:
        # Its decoder has a configuration of its own, so attention would not be switched for packed sequences.
        raise ModelUnavailable(
            f"The model {str(path)!r} ({config.model_type}) reads more than text, and only decoders of text can be "
            "run here. Use the text model of the family, or save its language model alone."
        )
    return config


def _load(
    auto_class: Any,
    path: Path | str,
    *,
    device: str | None,
    is_trained: bool,
    dtype: str = "auto",
    new_heads: tuple[str, ...] = (),
    **changes: Any,
) -> Any:
    """A model whose weights all come from its files, but for `new_heads`, which replace the old one."""
    from transformers.utils import logging

    from ragen.modeling.finite import describe, non_finite

    logging.disable_progress_bar()
    device = device or default_device()
    verbosity = logging.get_verbosity()
    config = _read_config(path, **changes)
    try:
        if is_trained:
            # With dropout, the log-probs of an update would differ from those of the rollout.
            for name, value in config.to_dict().items():
                if "drop" in name and isinstance(value, float):
                    setattr(config, name, 0.0)
        logging.set_verbosity_error()  # that the value head is new is expected
        model, info = auto_class.from_pretrained(
            path,
            config=config,
            dtype=precision(device, dtype),
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are refused below, by name
        )
    except Exception as error:  # whatever a library makes of a folder's content
        raise ModelUnavailable(f"The model {str(path)!r} cannot be loaded: {_reason(error)}") from error
    finally:
        logging.set_verbosity(verbosity)
    check_all_loaded(path, info, new_heads=new_heads)
    if is_trained:
        prepare_for_training(model)
    model = model.to(device).eval()
    weights = model.state_dict()
    if names := non_finite(weights):
        raise ModelUnavailable(
            f"The model {str(path)!r} is broken: {describe(names, len(weights))}. Choose another checkpoint or model."
        )
    return model


def check_all_loaded(path: Path | str, info: Mapping[str, Any], *, new_heads: tuple[str, ...]) -> None:
    """Refuse weights that do not match the architecture: what is missing would be random, without a word."""
    missing = [name for name in info["missing_keys"] if not name.startswith(new_heads)]
    extra = [name for name in info["unexpected_keys"] if not (new_heads and name.startswith(OLD_HEAD))]
    wrong = [str(entry[0]) for entry in info["mismatched_keys"]]
    faults = {"missing": missing, "not part of the architecture": extra, "of another shape": wrong}
    if any(faults.values()):
        said = "; ".join(f"{what}: {_listed(names)}" for what, names in faults.items() if names)
        raise ModelUnavailable(
            f"The weights of {str(path)!r} do not match its config.json. Tensors {said}. "
            "Copy weights and config.json from one and the same model."
        )


def _listed(names: Sequence[str]) -> str:
    """Three names and the number of the others."""
    names = sorted(names)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _reason(error: Exception) -> str:
    """What a library said, in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:LONGEST_REASON]}"


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
