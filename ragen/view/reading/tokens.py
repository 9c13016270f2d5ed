"""The text of every token, by the tokenizer of the run's model, where its folder still exists; without torch.

`tokenizers`, which comes with transformers, reads tokenizer.json alone. Nothing is fetched.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ragen.errors import RagenError
from ragen.files import stamp
from ragen.models.catalogue import CATALOGUE, fetched_dir
from ragen.models.resolve import HUB_NAME, cached_snapshot, resolve_tiny
from ragen.view.reading.settings import at

FILE = "tokenizer.json"
UNFINISHED = "\N{REPLACEMENT CHARACTER}"
"""What the first bytes of a character decode to."""


class Decoder:
    """Token ids to texts; `reason` says why there are none."""

    def __init__(self, tokenizer: Any = None, reason: str = "") -> None:
        self.tokenizer, self.reason = tokenizer, reason

    def texts(self, ids: Sequence[int]) -> list[str] | None:
        """The text that each token adds; that of a character made of several tokens stands at the last of them."""
        if self.tokenizer is None:
            return None
        texts: list[str] = []
        start = read = 0
        for end in range(1, len(ids) + 1):
            # Some tokenizers write a token otherwise at the start of a text: the one before it comes along.
            before, now = self._decode(ids[start:read]), self._decode(ids[start:end])
            if now.endswith(UNFINISHED) and end < len(ids):
                texts.append("")
                continue
            texts.append(now[len(before) :])
            start, read = read, end
        return texts

    def _decode(self, ids: Sequence[int]) -> str:
        known = self.tokenizer.get_vocab_size()
        return self.tokenizer.decode([i for i in ids if 0 <= i < known], skip_special_tokens=False) if ids else ""


def decoder_of(settings: Mapping[str, Any], env_type: str) -> Decoder:
    """The decoder of a run's model."""
    model = at(settings, "actor_rollout_ref", "model", "path") or at(settings, "model_path")
    if not isinstance(model, str) or not model:
        return Decoder(reason="The run's configuration names no model.")
    folder = model_folder(model, env_type)
    if folder is None or not (folder / FILE).is_file():
        return Decoder(reason=f"The tokenizer of the model {model} is not on this machine ({FILE}).")
    return _load(folder / FILE, stamp(folder / FILE))


def model_folder(model: str, env_type: str) -> Path | None:
    """Where a model lies on this machine; None where it does not."""
    try:
        if model == "tiny" or model.startswith("tiny/"):
            return resolve_tiny(model, env_types=[env_type])
        path = Path(model).expanduser()
        if path.is_dir():
            return path
        if model in CATALOGUE:
            return fetched_dir(CATALOGUE[model])
        return cached_snapshot(model) if HUB_NAME.fullmatch(model) else None
    except (RagenError, OSError, RuntimeError, ValueError, ImportError):
        return None


@functools.lru_cache(maxsize=2)  # one of a large vocabulary takes a hundred megabytes
def _load(path: Path, version: Any) -> Decoder:
    try:
        from tokenizers import Tokenizer

        return Decoder(Tokenizer.from_file(str(path)))
    except Exception as error:  # the library raises plain Exceptions
        return Decoder(reason=f"The tokenizer of the run's model cannot be read ({type(error).__name__}).")
