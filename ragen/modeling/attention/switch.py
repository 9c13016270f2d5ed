"""Which attention function a Hugging Face model calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def attention_function(config: Any, name: str) -> Iterator[str]:
    """Within: models of this config call the function registered as `name`; yields the one they called before."""
    # A private attribute of transformers; nothing else touches it.
    before, config._attn_implementation_internal = config._attn_implementation_internal, name
    try:
        yield before
    finally:
        config._attn_implementation_internal = before
