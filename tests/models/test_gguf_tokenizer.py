"""Tokenizers of converted models: the same ids as the original, a pad of its own, an end that ends."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from ragen.errors import ConfigError
from ragen.models.gguf_file import Gguf, open_gguf
from ragen.models.gguf_tokenizer import check_tokenizer, load, write_tokenizer
from tests.models.gguf_bytes import gguf_bytes, plain, tokenizer_facts, toy_tokenizer

TEXT = "<|im_start|>user\nnaïve café 😀 don't go 1234<|im_end|>\n\n\tUp || Down  </answer>"


def written(folder: Path, tokenizer: Any, *, num_rows: int = 0, **changes: Any) -> Gguf:
    import numpy as np

    num_rows = num_rows or len(tokenizer) + 8
    facts = {"general.architecture": "llama", "llama.context_length": 64} | tokenizer_facts(tokenizer, num_rows)
    facts |= {f"tokenizer.ggml.{name}": value for name, value in changes.items()}
    path = folder / "toy.gguf"
    path.write_bytes(gguf_bytes(facts, {"token_embd.weight": plain(np.zeros((num_rows, 2)), 0)}))
    return open_gguf([path])


def target_of(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("style", ["qwen2.5", "llama3", "deepseek"])
def test_a_rebuilt_tokenizer_gives_the_same_ids(tmp_path: Path, style: str):
    original = toy_tokenizer(style)
    gguf, target = written(tmp_path, original), target_of(tmp_path)
    check_tokenizer(gguf, None)
    write_tokenizer(gguf, None, target)
    rebuilt = load(target)
    assert len(rebuilt) == len(original), "rows without a token have none"
    assert rebuilt.encode(TEXT, add_special_tokens=False) == original.encode(TEXT, add_special_tokens=False)
    assert rebuilt.decode(rebuilt.encode(TEXT, add_special_tokens=False)) == TEXT
    assert rebuilt.chat_template == original.chat_template
    assert rebuilt.added_tokens_decoder.keys() == original.added_tokens_decoder.keys()


def test_a_file_that_wants_a_first_token_gets_it(tmp_path: Path):
    original = toy_tokenizer("llama3")
    gguf = written(tmp_path, original, bos_token_id=original.bos_token_id, add_bos_token=True)
    write_tokenizer(gguf, None, target := target_of(tmp_path))
    assert load(target).encode("go")[0] == original.bos_token_id


@pytest.mark.parametrize("is_given", [True, False])
def test_pad_is_not_the_end_token(tmp_path: Path, is_given: bool):
    original = toy_tokenizer()
    folder = tmp_path / "tokenizer"
    original.save_pretrained(folder)
    if is_given:  # older tokenizers name their roles in a second file
        (folder / "special_tokens_map.json").write_text(json.dumps({"pad_token": original.eos_token}))
    gguf, target = written(tmp_path, original), target_of(tmp_path)
    ids = write_tokenizer(gguf, folder if is_given else None, target)
    pad = original.convert_tokens_to_ids("<|endoftext|>")
    assert ids == {"eos_token_id": original.eos_token_id, "pad_token_id": pad}
    assert (load(target).pad_token, load(target).eos_token) == ("<|endoftext|>", "<|im_end|>")


def test_the_end_of_a_turn_and_of_a_text_both_end(tmp_path: Path):
    original = toy_tokenizer("llama3_base")  # its eos is not what ends a turn
    turn = original.convert_tokens_to_ids("<|eot_id|>")
    gguf, target = written(tmp_path, original, eot_token_id=turn), target_of(tmp_path)
    ids = write_tokenizer(gguf, None, target)
    assert ids["eos_token_id"] == [original.eos_token_id, turn]
    assert ids["pad_token_id"] not in ids["eos_token_id"]


def test_the_template_of_the_file_helps_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    original, folder = toy_tokenizer(), tmp_path / "tokenizer"
    original.save_pretrained(folder)
    (folder / "chat_template.jinja").unlink()
    gguf, target = written(tmp_path, original), target_of(tmp_path)
    write_tokenizer(gguf, folder, target)
    assert load(target).chat_template == original.chat_template
    assert "no chat template: the one inside the GGUF file is used" in capsys.readouterr().out


def test_the_tokenizer_of_another_model_is_refused(tmp_path: Path):
    folder = tmp_path / "tokenizer"
    toy_tokenizer("llama3").save_pretrained(folder)
    with pytest.raises(ConfigError, match=r"is not that of .*gguf: \d+ of \d+ tokens differ: \d+ is '.+' and '.+'"):
        check_tokenizer(written(tmp_path, toy_tokenizer()), folder)
    with pytest.raises(ConfigError, match=r"the embedding of .* has 9 rows"):
        check_tokenizer(written(tmp_path, toy_tokenizer("llama3"), num_rows=9), folder)


def test_a_special_token_of_a_sister_model_needs_no_row(tmp_path: Path):
    original = copy.deepcopy(toy_tokenizer())
    num_rows = len(original)
    gguf = written(tmp_path, original, num_rows=num_rows)
    original.add_special_tokens({"extra_special_tokens": ["<image_soft_token>"]})
    original.save_pretrained(tmp_path / "tokenizer")
    check_tokenizer(gguf, tmp_path / "tokenizer")
    original.add_tokens(["word"])
    original.save_pretrained(tmp_path / "tokenizer")
    with pytest.raises(ConfigError, match=f"has {num_rows} rows"):
        check_tokenizer(gguf, tmp_path / "tokenizer")


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path):
    gguf = written(tmp_path, toy_tokenizer())
    with pytest.raises(ConfigError, match=r"holds no tokenizer. Give a folder with one of tokenizer\.json"):
        check_tokenizer(gguf, tmp_path)
    with pytest.raises(ConfigError, match="is not a folder"):
        check_tokenizer(gguf, tmp_path / "no")


@pytest.mark.parametrize(("key", "value"), [("model", "llama"), ("pre", "tekken")])
def test_a_vocabulary_that_cannot_be_rebuilt_asks_for_the_original(tmp_path: Path, key: str, value: str):
    with pytest.raises(ConfigError, match=rf"{value}.*cannot be rebuilt exactly.*--tokenizer DIR"):
        check_tokenizer(written(tmp_path, toy_tokenizer(), **{key: value}), None)


def test_a_tokenizer_in_which_two_tokens_changed_places_is_refused(tmp_path: Path):
    gguf, folder = written(tmp_path, toy_tokenizer()), tmp_path / "tokenizer"
    toy_tokenizer().save_pretrained(folder)
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = content["model"]["vocab"]
    first, second = sorted(vocabulary, key=vocabulary.get)[10:12]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"toy.gguf: 2 of .* tokens differ") as refused:
        check_tokenizer(gguf, folder)
    assert repr(first) in str(refused.value) and repr(second) in str(refused.value)


def test_names_of_rows_without_a_text_may_differ_which_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    original, folder = toy_tokenizer(), tmp_path / "tokenizer"
    original.save_pretrained(folder)
    gguf = written(tmp_path, original)
    tokens = gguf.facts["tokenizer.ggml.tokens"]
    tokens[5] = "<unused_5>"
    check_tokenizer(gguf, folder)
    assert "1 of " in (said := capsys.readouterr().out) and "'<unused_5>'" in said
