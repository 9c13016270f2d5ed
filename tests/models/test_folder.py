"""A model folder that is not a whole model is refused before its weights are used, and its code is never run."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragen.errors import RagenError
from ragen.modeling.load import load_model, load_tokenizer, load_value_model
from ragen.models.folder import check_context, longest_context
from ragen.models.resolve import TINY_ROOT, resolve_model

WEIGHTS = "model.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TINY_ROOT / "bandit", tmp_path / "model"))


def load_all(folder: Path) -> None:
    """As training does."""
    path = resolve_model(str(folder))
    load_tokenizer(path)
    load_model(path, device="cpu")
    load_value_model(path, device="cpu")


def change_json(name: str, **changes: Any) -> Callable[[Path], Any]:
    def change(folder: Path) -> None:
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def write(name: str, content: bytes) -> Callable[[Path], Any]:
    return lambda folder: (folder / name).write_bytes(content)


def cut(name: str, share: float) -> Callable[[Path], Any]:
    def change(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(share * len(content))])

    return change


def remove(*names: str) -> Callable[[Path], Any]:
    return lambda folder: [(folder / name).unlink() for name in names]


def change_tensors(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], Any]:
    def rewrite(folder: Path) -> None:
        from safetensors.torch import load_file, save_file

        tensors = load_file(folder / WEIGHTS)
        change(tensors)
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})

    return rewrite


def rename(tensors: dict[str, Any]) -> None:
    tensors["model.layers.0.self_attn.query.weight"] = tensors.pop("model.layers.0.self_attn.q_proj.weight")


def as_pickle(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")


def as_shards(folder: Path) -> None:
    """An index that names a second file which was not copied."""
    (folder / WEIGHTS).rename(folder / "model-00001-of-00002.safetensors")
    shards = {"model.norm.weight": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))


BROKEN: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a tensor was renamed": (change_tensors(rename), r"q_proj\.weight.*query\.weight"),
    "a tensor is missing": (change_tensors(lambda t: t.update(x=t.pop("model.norm.weight"))), r"missing: model\.norm"),
    "a tensor too many": (change_tensors(lambda t: t.update(x=t["model.norm.weight"].clone())), "architecture: x"),
    "a tensor has another shape": (
        change_tensors(lambda t: t.update({"model.norm.weight": t["model.norm.weight"][:7].clone()})),
        r"model\.norm\.weight",
    ),
    "fewer layers in the config": (
        change_json("config.json", num_hidden_layers=1, layer_types=["full_attention"]),
        r"not part of the architecture: model\.layers\.1",
    ),
    "more layers in the config": (change_json("config.json", num_hidden_layers=9), "num_hidden_layers=9"),
    "another width in the config": (change_json("config.json", hidden_size=64), "hidden_size=64"),
    "an absurd width": (change_json("config.json", hidden_size=10**12), "hidden_size is 1000000000000"),
    "an absurd depth": (change_json("config.json", num_hidden_layers=5000), "num_hidden_layers=5000"),
    "a width in words": (change_json("config.json", hidden_size="wide"), "hidden_size is wide"),
    "a negative size": (change_json("config.json", vocab_size=-1), "vocab_size is -1"),
    "heads that do not divide": (change_json("config.json", num_attention_heads=7, head_dim=None), "model"),
    "an unknown architecture": (change_json("config.json", model_type="nope", architectures=["Nope"]), "nope"),
    "a config that is a list": (write("config.json", b"[]"), r"config\.json: expected a JSON object"),
    "a config cut short": (cut("config.json", 0.5), r"config\.json is not JSON"),
    "an empty config": (write("config.json", b""), r"config\.json is not JSON"),
    "binary in the config": (write("config.json", b"\x80\x00\xff"), r"config\.json is not text"),
    "weights cut short": (cut(WEIGHTS, 0.9), r"model\.safetensors was cut short"),
    "a header cut short": (cut(WEIGHTS, 0.001), r"model\.safetensors is not a safetensors file"),
    "empty weights": (write(WEIGHTS, b""), r"model\.safetensors is not a safetensors file"),
    "weights of something else": (write(WEIGHTS, b"PK\x03\x04" + bytes(100)), r"is not a safetensors file"),
    "no weights": (remove(WEIGHTS), "holds no weights"),
    "pickled weights": (as_pickle, "which may hold code"),
    "a shard that was not copied": (as_shards, r"names model-00002-of-00002\.safetensors, which is not in"),
    "no tokenizer": (remove("tokenizer.json"), "holds no tokenizer"),
    "no tokenizer at all": (remove("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"), "no tokenizer"),
    "a tokenizer cut short": (cut("tokenizer.json", 0.5), "tokenizer of .* cannot be loaded"),
    "an empty tokenizer": (write("tokenizer.json", b"{}"), "tokenizer of .* cannot be loaded"),
    "code for the model": (change_json("config.json", auto_map={"AutoModelForCausalLM": "evil.Model"}), "auto_map"),
    "code for the tokenizer": (change_json("tokenizer_config.json", auto_map={"AutoTokenizer": "evil.T"}), "auto_map"),
    "an adapter beside the model": (write("adapter_config.json", b"{}"), "an adapter of one"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_folder_is_refused_by_name(folder: Path, name: str):
    change, words = BROKEN[name]
    change(folder)
    with pytest.raises(RagenError, match=words) as caught:
        load_all(folder)
    assert str(folder) in str(caught.value) and "\n" not in str(caught.value)


def test_an_embedded_model_is_whole(folder: Path):
    load_all(folder)


def test_a_tokenizer_of_another_model_is_refused(folder: Path):
    text = (TINY_ROOT / "sokoban/tokenizer.json").read_text()
    change_json("config.json", vocab_size=1000)(folder)
    (folder / "tokenizer.json").write_text(text)
    with pytest.raises(RagenError, match=r"has \d+ tokens, the model's embedding has 1000"):
        load_tokenizer(folder)
    change_json("config.json", vocab_size=300)(folder)
    with pytest.raises(RagenError, match=r"has \d+ tokens, the model's embedding has 300"):
        load_tokenizer(folder)


def test_special_tokens_of_a_sister_model_need_no_row(folder: Path):
    tokenizer = load_tokenizer(folder)
    num_rows = json.loads((folder / "config.json").read_text())["vocab_size"]
    images = [f"<image {number}>" for number in range(num_rows - len(tokenizer) + 2)]
    tokenizer.add_special_tokens({"extra_special_tokens": images})
    tokenizer.save_pretrained(folder)
    assert len(load_tokenizer(folder)) == num_rows + 2
    tokenizer.add_tokens(["word"])  # any text may hold it
    tokenizer.save_pretrained(folder)
    with pytest.raises(RagenError, match=f"has {num_rows + 3} tokens, the model's embedding has {num_rows}"):
        load_tokenizer(folder)


def test_code_of_a_folder_is_not_run_even_if_the_answer_is_yes(folder: Path, monkeypatch: pytest.MonkeyPatch):
    evil = folder.parent / "was_here"
    (folder / "evil.py").write_text(f"open({str(evil)!r}, 'w')\nclass Model: pass\nclass Config: pass\n")
    code = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model", "AutoTokenizer": ["evil.Model", None]}
    change_json("config.json", auto_map=code, model_type="evil")(folder)
    change_json("tokenizer_config.json", auto_map=code)(folder)
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    for load in (load_all, load_model, load_value_model):
        with pytest.raises(RagenError):
            load(folder)
    load_tokenizer(folder)  # transformers has a class of its own for it
    assert not evil.exists()


# --- how long a context may be

DYNAMIC = {"max_position_embeddings": 2048, "rope_scaling": {"type": "dynamic", "factor": 2.0}}


def test_a_context_longer_than_the_positions_names_the_number_that_works(folder: Path):
    check_context(folder, 4096, "max_model_len")
    with pytest.raises(RagenError, match=r"max_model_len is 4097.*has 4096 positions.*Set it to 4096 or less"):
        check_context(folder, 4097, "max_model_len")


@pytest.mark.parametrize(
    ("config", "limit"),
    [
        ({}, None),
        ({"max_position_embeddings": 2048}, 2048),
        ({"n_positions": 1024}, 1024),
        ({"text_config": {"max_position_embeddings": 512}}, 512),
        (DYNAMIC, 2048),
        ({"max_position_embeddings": 8192, "rope_parameters": DYNAMIC["rope_scaling"]}, 8192),
        (
            {
                "max_position_embeddings": 131072,
                "original_max_position_embeddings": 4096,
                "rope_scaling": {"rope_type": "longrope"},
            },
            4096,
        ),
        (
            {
                "max_position_embeddings": 131072,
                "rope_scaling": {"rope_type": "llama3", "original_max_position_embeddings": 8192},
            },
            131072,
        ),
        ({"max_position_embeddings": 9, "rope_parameters": {"full_attention": {"rope_type": "default"}}}, 9),
    ],
)
def test_the_longest_context_is_read_from_the_config(config: dict[str, Any], limit: int | None):
    found = longest_context(config)
    assert (found.num_tokens if found else None) == limit


def test_a_rotary_embedding_that_grows_says_why():
    found = longest_context(DYNAMIC)
    assert found and "rotary embedding (dynamic) changes with the length beyond 2048" in found.reason


@pytest.mark.parametrize("family", ["gpt_neox", "llama"])
def test_a_critic_leaves_the_output_layer_of_its_actor_behind(family: str, tmp_path: Path):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(
        family, vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4
    )
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(tmp_path)
    model = load_value_model(tmp_path, device="cpu")
    assert model(input_ids=torch.tensor([[5, 6]])).logits.tolist() == [[[0.0], [0.0]]]


def test_a_model_that_reads_images_is_refused(tmp_path: Path):
    from transformers import Gemma3Config

    Gemma3Config().save_pretrained(tmp_path)
    for load in (load_model, load_value_model):
        with pytest.raises(RagenError, match=r"\(gemma3\) reads more than text.*Use the text model of the family"):
            load(tmp_path)
