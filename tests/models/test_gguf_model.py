"""`ragen models convert`: the converted model computes what its source does, or nothing is written."""

import json
import shutil
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from ragen.cli import main
from ragen.models import gguf_model
from ragen.models.gguf_file import sha256_of
from ragen.models.resolve import resolve_model
from tests.models.gguf_bytes import BF16, CONFIGS, F16, toy_tokenizer, write_gguf, write_split

TOKENS = torch.arange(3, 43)[None]  # longer than the sliding windows


def convert(*arguments: object) -> int:
    return main(["models", "convert", *map(str, arguments)])


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(TOKENS).logits


def loaded(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(
        resolve_model(str(folder)), dtype=torch.float32, attn_implementation="eager"
    )


@pytest.mark.parametrize("family", CONFIGS)
def test_a_converted_model_computes_what_its_source_does(tmp_path: Path, family: str):
    source = write_gguf(tmp_path / "m.gguf", family)
    assert convert(tmp_path / "m.gguf", tmp_path / "model") == 0
    torch.testing.assert_close(logits(loaded(tmp_path / "model")), logits(source), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("kind", "dtype"), [(F16, "float16"), (BF16, "bfloat16")])
def test_unquantized_numbers_keep_their_format(tmp_path: Path, kind: int, dtype: str):
    source = write_gguf(tmp_path / "m.gguf", "llama", kind=kind)
    assert convert(tmp_path / "m.gguf", tmp_path / "model") == 0
    config = json.loads((tmp_path / "model/config.json").read_text())
    assert (config["dtype"], config["tie_word_embeddings"]) == (dtype, False)
    for weight in source.parameters():
        # The writer cuts the lower half of a float32 to make a bfloat16.
        lower = weight.data.view(torch.int32).bitwise_and(~0xFFFF).view(torch.float32)
        weight.data = weight.data.half().float() if kind == F16 else (lower if weight.dim() > 1 else weight.data)
        weight.data = weight.data.to(getattr(torch, dtype)).float()
    torch.testing.assert_close(logits(loaded(tmp_path / "model")), logits(source), atol=1e-5, rtol=1e-5)


def test_pieces_a_hash_and_a_tokenizer_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    source = write_gguf(tmp_path / "m.gguf")
    content = (tmp_path / "m.gguf").read_bytes()
    for name, piece in (("b", content[9999:]), ("a", content[:9999])):
        (tmp_path / name).write_bytes(piece)
    toy_tokenizer().save_pretrained(tmp_path / "tokenizer")
    digest = sha256_of([tmp_path / "m.gguf"])
    tokenizer = ("--tokenizer", tmp_path / "tokenizer", "--sha256", digest.upper())
    assert convert(tmp_path / "a", tmp_path / "b", tmp_path / "model", *tokenizer) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "checking sha256 of a, b" and lines[-1].endswith(f"model_path={tmp_path / 'model'}")
    assert lines[-2].startswith("converting: 26 of 26 tensors")
    model = loaded(tmp_path / "model")
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert torch.equal(logits(model), logits(source))
    assert json.loads((tmp_path / "model/ragen.json").read_text()) == {
        "source": ["a", "b"],
        "sha256": digest,
        "formats": {"F32": 26},
    }
    eos, pad = model.generation_config.eos_token_id, model.generation_config.pad_token_id
    assert (eos, pad) == (toy_tokenizer().eos_token_id, toy_tokenizer().convert_tokens_to_ids("<|endoftext|>"))
    assert (model.config.eos_token_id, model.config.pad_token_id) == (eos, pad)


def test_split_files_become_shards_where_memory_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = write_gguf(tmp_path / "m.gguf")
    parts = write_split(tmp_path / "m.gguf", 2)
    monkeypatch.setattr(gguf_model, "SHARD_BYTES", 60_000)
    assert convert(parts[0], tmp_path / "model") == 0
    assert len(list((tmp_path / "model").glob("model-*.safetensors"))) > 1
    assert torch.equal(logits(loaded(tmp_path / "model")), logits(source))


def test_a_quantized_file_is_close_to_its_source(tmp_path: Path):
    gguf = pytest.importorskip("gguf", reason="the models extra is not installed")
    from tests.models import gguf_bytes as writer

    tokenizer = toy_tokenizer()
    source = writer.random_model("llama", vocab_size=448)
    facts = writer.model_facts(source, "llama") | writer.tokenizer_facts(tokenizer, 448)
    q8 = gguf.GGMLQuantizationType.Q8_0
    tensors = {
        name: tensor if len(tensor[1]) < 2 else (int(q8), tensor[1], gguf.quantize(as_array(tensor), q8).tobytes())
        for name, tensor in writer.model_tensors(source, "llama").items()
    }
    (tmp_path / "m.gguf").write_bytes(writer.gguf_bytes(facts, tensors))
    reader = gguf.GGUFReader(tmp_path / "m.gguf")  # the format's own reader takes our file
    assert {tensor.name for tensor in reader.tensors} == tensors.keys()
    assert convert(tmp_path / "m.gguf", tmp_path / "model") == 0
    assert json.loads((tmp_path / "model/config.json").read_text())["dtype"] == "bfloat16"
    ours, theirs = logits(loaded(tmp_path / "model")), logits(source)
    assert ((ours - theirs).norm() / theirs.norm()) < 0.05


def as_array(tensor: tuple) -> Any:
    import numpy as np

    return np.frombuffer(tensor[2], "<f4").reshape(tensor[1])


# --- errors, before anything is written


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_gguf(tmp_path / "m.gguf")
    return tmp_path / "m.gguf"


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert convert(*arguments) == 1
    captured = capsys.readouterr()
    assert "converting" not in captured.out
    return captured.err


def test_another_hash(source: Path, tmp_path: Path, capsys):
    error = refused(capsys, source, tmp_path / "model", "--sha256", "0" * 64)
    assert error.startswith(f"error: {source} has sha256 ") and "expected 0000" in error
    assert "has 64 digits" in refused(capsys, source, tmp_path / "model", "--sha256", "abc")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.gguf"]


def test_another_hash_of_several_pieces_is_of_all_of_them(source: Path, tmp_path: Path, capsys):
    parts = write_split(source, 2)
    error = refused(capsys, *parts, tmp_path / "model", "--sha256", sha256_of(parts[:1]))
    assert f"error: {parts[0]} and the other pieces, 2 together, have sha256 {sha256_of(parts)}, expected" in error
    assert "it is of all of them, one after the other" in error


def test_a_folder_that_is_in_use(source: Path, tmp_path: Path, capsys):
    (tmp_path / "model").mkdir()
    (tmp_path / "model/notes").write_text("keep")
    assert "exists and is not empty. Give a new folder" in refused(capsys, source, tmp_path / "model")
    assert "is a file" in refused(capsys, source, tmp_path / "model/notes")
    (tmp_path / "model/notes").unlink()
    assert convert(source, tmp_path / "model") == 0, "an empty folder will do"


def test_a_full_disk(source: Path, tmp_path: Path, capsys, monkeypatch):
    usage = namedtuple("usage", "total used free")(1, 1, 10**6)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    error = refused(capsys, source, tmp_path / "model")
    assert "1 MB are free there, and the converted model needs about 50 MB" in error


def test_tensors_that_do_not_make_the_model(tmp_path: Path, capsys):
    from tests.models import gguf_bytes as writer

    model = writer.random_model("qwen2", vocab_size=440)
    tensors = writer.model_tensors(model, "qwen2")
    facts = writer.model_facts(model, "qwen2") | writer.tokenizer_facts(toy_tokenizer(), 440)
    path = tmp_path / "m.gguf"
    path.write_bytes(writer.gguf_bytes(facts, {k: v for k, v in tensors.items() if k != "blk.1.attn_k.bias"}))
    error = refused(capsys, path, tmp_path / "model")
    assert "model.layers.1.self_attn.k_proj.bias is missing, expected (16,) (1 such)" in error
    path.write_bytes(writer.gguf_bytes(facts | {"qwen2.feed_forward_length": 65}, tensors))
    assert "down_proj.weight is (32, 64), expected (32, 65)" in refused(capsys, path, tmp_path / "model")
    path.write_bytes(writer.gguf_bytes({k: v for k, v in facts.items() if "head_count" not in k}, tensors))
    assert "qwen2.attention.head_count is missing" in refused(capsys, path, tmp_path / "model")


def test_numbers_that_are_none_are_refused(tmp_path: Path, capsys):
    write_gguf(tmp_path / "m.gguf")
    content = (tmp_path / "m.gguf").read_bytes()
    at = len(content) - 30_000  # behind the header, where nobody but the numbers tells
    pieces = (content[:at], b"\xff" * 20_000, content[at + 20_000 :])
    for name, piece in zip("abc", pieces, strict=True):
        (tmp_path / name).write_bytes(piece)
    assert convert(*(tmp_path / name for name in "abc"), tmp_path / "model") == 1
    assert "holds NaN or infinity. The file is damaged, or its pieces" in capsys.readouterr().err
    assert not (tmp_path / "model").exists()


def test_a_conversion_that_breaks_leaves_nothing_behind(source: Path, tmp_path: Path, monkeypatch):
    def breaks(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gguf_model, "read_weight", breaks)
    assert convert(source, tmp_path / "model") == 130
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.gguf"]
