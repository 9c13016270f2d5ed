"""Games of TextWorld, made from a seed and kept in the user's cache folder under the hash of what made them.

Tested in tests/env/adapters/test_textworld.py.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
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


def game_file(*, seed: int, num_rooms: int, num_objects: int, quest_length: int, quest_breadth: int) -> Path:
    """The compiled game of these settings; made the first time it is asked for."""
    with needing_extra("textworld", "env_type textworld needs TextWorld, which is not installed"):
        package = import_module("textworld")
    settings = {
        "textworld": package.__version__,
        "seed": seed,
        "nb_rooms": num_rooms,
        "nb_objects": num_objects,
        "quest_length": quest_length,
        "quest_breadth": quest_breadth,
    }
    key = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:32]
    file = games_folder() / key / "game.z8"
    with _TURN:
        if not file.exists():
            make_game(settings, file.parent)
    return file


def make_game(settings: dict, folder: Path) -> None:
    """Make a game beside its folder and move it there whole: a kill, or another process, leaves no half of it."""
    generator = import_module("textworld.generator")
    options = generator.GameOptions()
    options.seeds = settings["seed"] % 2**32
    for name in ("nb_rooms", "nb_objects", "quest_length", "quest_breadth"):
        setattr(options, name, settings[name])
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="making-", dir=folder.parent))
    try:
        options.path = str(scratch / "game.z8")
        try:
            generator.compile_game(generator.make_game(options), options)
        except Exception as error:  # its generator gives up in several ways, all of them about these numbers
            wanted = ", ".join(f"{name} {settings[name]}" for name in list(settings)[2:])
            raise ConfigError(
                f"textworld: no game of seed {settings['seed']} with {wanted}: {error}. Ask for a shorter quest or "
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
