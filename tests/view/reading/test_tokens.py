"""Tokens as texts, by the embedded models' own tokenizers."""

import pytest
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel
from tokenizers.models import BPE

from ragen.models.resolve import TINY_ROOT
from ragen.view.reading.tokens import Decoder, decoder_of

TINY = {"model_path": "tiny"}


def test_the_texts_of_the_tokens_are_the_reply():
    tokenizer = Tokenizer.from_file(str(TINY_ROOT / "frozen_lake" / "tokenizer.json"))
    text = "<think>Goal up 2, right 1.</think><answer>Up || Up</answer>"
    ids = tokenizer.encode(text).ids
    texts = decoder_of(TINY, "frozen_lake").texts(ids)
    assert texts is not None and len(texts) == len(ids) > 5
    assert "".join(texts) == text


def test_a_character_of_several_tokens_stands_at_the_last():
    tokenizer = Tokenizer(BPE({"a": 0, "Ã": 1, "¼": 2}, []))  # ü is C3 BC
    tokenizer.decoder = ByteLevel()
    assert Decoder(tokenizer).texts([0, 1, 2, 0]) == ["a", "", "ü", "a"]
    assert Decoder(tokenizer).texts([0, 1]) == ["a", "\ufffd"]
    assert Decoder(tokenizer).texts([0, 99, 0]) == ["a", "", "a"]
    assert Decoder(tokenizer).texts([]) == []


@pytest.mark.parametrize("model", ["/no/such/folder", "org/never-fetched-model", "tiny/nope", "nonsense", "a\0b"])
def test_without_the_model_it_is_said_why(model):
    found = decoder_of({"actor_rollout_ref": {"model": {"path": model}}}, "frozen_lake")
    assert found.texts([1]) is None
    assert "is not on this machine" in found.reason


def test_without_a_configuration_it_is_said_why():
    assert "names no model" in decoder_of({}, "frozen_lake").reason


def test_a_broken_tokenizer_is_said(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{")
    assert "cannot be read" in decoder_of({"model_path": str(tmp_path)}, "frozen_lake").reason
