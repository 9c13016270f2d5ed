"""What a GGUF file says of its architecture, in the words of Hugging Face."""

from pathlib import Path

import pytest
import torch

from ragen.errors import FileError
from ragen.models.gguf_architectures import (
    ARCHITECTURES,
    Facts,
    architecture_of,
    finer_copy,
    hf_name,
    is_tied,
    llama3_factor,
    rope_parameters,
    rotary_halves,
)
from ragen.models.gguf_file import Gguf, open_gguf
from tests.models.gguf_bytes import F16, F32, LLAMA3_ROPE, gguf_bytes, plain


def written(folder: Path, **tensors: tuple) -> Gguf:
    path = folder / "toy.gguf"
    path.write_bytes(gguf_bytes({"general.architecture": "llama"}, {f"{k}.weight": v for k, v in tensors.items()}))
    return open_gguf([path])


def test_names_of_llama_cpp_become_those_of_hugging_face():
    llama, gemma, phi = (ARCHITECTURES[name] for name in ("llama", "gemma2", "phi3"))
    assert hf_name("blk.3.attn_q.weight", llama, "f") == "model.layers.3.self_attn.q_proj.weight"
    assert hf_name("token_embd.weight", llama, "f") == "model.embed_tokens.weight"
    assert hf_name("blk.0.ffn_norm.weight", gemma, "f") == "model.layers.0.pre_feedforward_layernorm.weight"
    assert hf_name("blk.0.ffn_up.weight", phi, "f") == "model.layers.0.mlp.gate_up_proj.weight"


def test_a_tensor_of_another_architecture_is_named():
    with pytest.raises(FileError, match=r"ffn_gate_exps\.weight', which LlamaForCausalLM does not have .*experts"):
        hf_name("blk.0.ffn_gate_exps.weight", ARCHITECTURES["llama"], "mixtral.gguf")


def test_interleaved_pairs_become_halves():
    rows = torch.tensor([[0.0], [10.0], [1.0], [11.0]])  # a0 b0 a1 b1
    assert rotary_halves(rows, num_heads=1).tolist() == [[0.0], [1.0], [10.0], [11.0]]
    assert rotary_halves(rows, num_heads=2).tolist() == rows.tolist(), "two heads of one pair each"
    assert rotary_halves(rows[:, 0], num_heads=1).tolist() == [0.0, 1.0, 10.0, 11.0], "a bias"


def test_an_unknown_architecture_lists_the_known_ones(tmp_path: Path):
    path = tmp_path / "toy.gguf"
    path.write_bytes(gguf_bytes({"general.architecture": "mamba"}, {}))
    with pytest.raises(FileError, match=r"'mamba'\. Supported: llama, qwen2, qwen3, gemma2, gemma3, phi3"):
        architecture_of(open_gguf([path]))


def test_a_matrix_stored_twice_in_two_formats_is_tied_and_the_finer_copy_kept(tmp_path: Path):
    torch.manual_seed(0)
    matrix = torch.randn(8, 32)
    rough = (matrix * 8).round() / 8
    once = written(tmp_path, token_embd=plain(matrix.numpy(), F16))
    assert is_tied(once) and finer_copy(once) == "token_embd.weight"
    twice = written(tmp_path, token_embd=plain(rough.numpy(), F16), output=plain(matrix.numpy(), F32))
    assert is_tied(twice) and finer_copy(twice) == "output.weight"
    other = written(tmp_path, token_embd=plain(matrix.numpy(), F32), output=plain(torch.randn(8, 32).numpy(), F32))
    assert not is_tied(other)


def test_llama_3_lowers_low_frequencies_only():
    assert llama3_factor(1.0, LLAMA3_ROPE) == 1.0
    assert llama3_factor(1e-5, LLAMA3_ROPE) == 8.0
    assert 1.0 < llama3_factor(2 * 2 * 3.1416 / 8192, LLAMA3_ROPE) < 8.0  # two turns in the original context


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        ({}, {"rope_type": "default"}),
        ({"type": "none"}, {"rope_type": "default"}),
        ({"type": "linear", "factor": 8.0}, {"rope_type": "linear", "factor": 8.0}),
        (
            {"type": "yarn", "factor": 4.0, "original_context_length": 32768},
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
        ),
    ],
)
def test_scaled_rotary_embeddings(tmp_path: Path, scaling: dict, expected: dict):
    path = tmp_path / "toy.gguf"
    facts = {"llama.rope.freq_base": 5e5} | {f"llama.rope.scaling.{name}": value for name, value in scaling.items()}
    path.write_bytes(gguf_bytes({"general.architecture": "llama"} | facts, {}))
    assert rope_parameters(Facts(open_gguf([path]))) == {"rope_theta": 5e5} | expected


def test_an_unknown_scaling_is_refused(tmp_path: Path):
    path = tmp_path / "toy.gguf"
    path.write_bytes(gguf_bytes({"general.architecture": "llama", "llama.rope.scaling.type": "spiral"}, {}))
    with pytest.raises(FileError, match=r"scaled by 'spiral'\. Supported: linear, yarn"):
        rope_parameters(Facts(open_gguf([path])))
