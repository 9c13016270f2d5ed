"""Games of TextWorld, made from a seed and kept in the user's cache folder under the hash of what made them.

Tested in tests/env/adapters/test_textworld.py.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from threading import Lock

from ragen.errors import ConfigError, needing_extra

_TURN = Lock()
"""One game is made at a time: the compiler takes seconds of a core."""


def games_folder() -> Path:
    """Where games lie: $RAGEN_GAMES, else ~/.cache/ragen/textworld."""
    return Path(os.environ.get("RAGEN_GAMES") or "~/.cache/ragen/textworld").expanduser()


def game_file(seed: int, sizes: Mapping[str, int]) -> Path:
    """The compiled game of a seed and of options of TextWorld's; made the first time it is asked for."""
    with needing_extra("textworld", "env_type textworld needs TextWorld, which is not installed"):
        package = import_module("textworld")
    settings = {"textworld": package.__version__, "seed": seed, **sizes}
    key = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:32]
    file = games_folder() / key / "game.z8"
    with _TURN:
        if not file.exists():
            make_game(seed, sizes, file.parent)
    return file


def make_game(seed: int, sizes: Mapping[str, int], folder: Path) -> None:
    """Make a game beside its folder and move it there whole: a kill, or another process, leaves no half of it."""
    generator = import_module("textworld.generator")
    options = generator.GameOptions()
    options.seeds = seed % 2**32
    for name, size in sizes.items():
        setattr(options, name, size)
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="making-", dir=folder.parent))
    try:
        options.path = str(scratch / "game.z8")
        try:
            generator.compile_game(generator.make_game(options), options)
        except Exception as error:  # its generator gives up in several ways, all of them about these numbers
            wanted = ", ".join(f"{name} {size}" for name, size in sizes.items())
            raise ConfigError(
                f"textworld: no game of seed {seed} with {wanted}: {error}. Ask for a shorter quest or "
                "more rooms and objects."
            ) from error
        with suppress(OSError):  # another process was faster: its game is the same
            scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def level_hash(file: Path) -> str:
    """What a game is made of, without the seeds that made it."""
    data = json.loads(file.with_suffix(".json").read_text())
    data.pop("metadata", None)
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
