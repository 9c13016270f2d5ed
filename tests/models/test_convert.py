"""Converters, on packages small enough to work out; tests/models/test_fetch.py converts the real ones."""

import json

import numpy as np
import torch
from safetensors.torch import load_file

from ragen.models.catalogue import CATALOGUE
from ragen.models.convert import CONVERTERS, LLAMA_SIZES, convert_minimind2
from tests.models.onnx_bytes import model, node, tensor


def test_every_entry_has_a_converter():
    assert CONVERTERS.keys() == CATALOGUE.keys()


def quantized(name: str, values: list[list[int]], *, scale: float, zero_point: int) -> list[bytes]:
    return [
        tensor(f"{name}_quantized", np.array(values, "uint8")),
        tensor(f"{name}_scale", np.array(scale, "float32")),
        tensor(f"{name}_zero_point", np.array(zero_point, "uint8")),
    ]


def test_minimind_is_dequantized_and_turned_round(tmp_path):
    package, target = tmp_path / "package", tmp_path / "target"
    (package / "package/onnx").mkdir(parents=True)
    target.mkdir()
    constants = [
        *quantized("model.embed_tokens.weight", [[128, 130], [126, 128]], scale=0.5, zero_point=128),
        *quantized("onnx::MatMul_1", [[1, 2], [3, 4]], scale=2.0, zero_point=1),
        tensor("model.norm.weight", np.array([1.0, 2.0], "float32")),
    ]
    nodes = [
        node("/model/layers.0/mlp/up_proj/MatMul_quant", ["x", "onnx::MatMul_1_quantized"]),
        node("/lm_head/MatMul_quant", ["x", "the embedding, which is tied"]),
        node("/model/Add", ["x", "y"]),
    ]
    (package / "package/onnx/model_quantized.onnx").write_bytes(model(constants, nodes))
    published = dict.fromkeys(LLAMA_SIZES, 2) | {"rope_theta": 1e6, "bos_token_id": 1, "eos_token_id": 2}
    (package / "package/config.json").write_text(json.dumps(published))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (package / "package" / name).write_text(f"the {name}")
    convert_minimind2(package, target)
    weights = load_file(target / "model.safetensors")
    assert {name: weight.tolist() for name, weight in weights.items()} == {
        "model.embed_tokens.weight": [[0.0, 1.0], [-1.0, 0.0]],
        "model.layers.0.mlp.up_proj.weight": [[0.0, 4.0], [2.0, 6.0]],
        "model.norm.weight": [1.0, 2.0],
    }
    assert {weight.dtype for weight in weights.values()} == {torch.float32}
    config = json.loads((target / "config.json").read_text())
    assert (config["model_type"], config["hidden_size"], config["rope_theta"]) == ("llama", 2, 1e6)
    assert (config["bos_token_id"], config["eos_token_id"], config["pad_token_id"]) == (1, 2, 0)
    assert (target / "tokenizer.json").read_text() == "the tokenizer.json"
