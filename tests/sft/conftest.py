"""Fixtures of supervised training."""

import pytest

from ragen.modeling.load import load_tokenizer
from ragen.models.resolve import resolve_model


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(resolve_model("tiny/frozen_lake"))
