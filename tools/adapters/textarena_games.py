"""Every game of TextArena with one player, without a network: does it start, and does its seed name the level?"""

from __future__ import annotations

import re
import signal
import socket
import sys
from pathlib import Path
from types import FrameType

from ragen.env.checker import HOSTILE
from ragen.env.textarena.env import TextArenaConfig, TextArenaEnv
from tools.adapters.trial import Trial

SEEDS = range(3)
NOT_FOR_ONE = "it has no state for one player"
MAX_SECONDS = 5
"""Of the processor, for all that is tried of a game."""
ANSWERS = ("[1]", "[up]", "[1 2]", "[0 0]", "[1 2 3 4]", "[yes]", "[draw]", "[A B]", *HOSTILE)


def try_all() -> dict[str, Trial]:
    import textarena

    socket.socket.connect = no_network  # type: ignore[method-assign]
    names = [name for name in textarena.envs.registration.ENV_REGISTRY if not name.endswith(("-raw", "-train"))]
    return {name: attempt(name) for name in sorted(names)}


def no_network(*args, **kwargs) -> None:
    raise OSError("no network")


def attempt(name: str) -> Trial:
    print(name, file=sys.stderr, flush=True)
    if not is_for_one(name):
        return Trial(fault=NOT_FOR_ONE)
    trial = Trial()
    signal.signal(signal.SIGVTALRM, too_slow)
    signal.setitimer(signal.ITIMER_VIRTUAL, MAX_SECONDS)
    try:
        config = object.__new__(TextArenaConfig)  # the names that the survey does not know yet are tried, too
        for key, value in {"name": name, "options": {}, "success": "reward >= 1"}.items():
            object.__setattr__(config, key, value)
        env = TextArenaEnv(config)
        for seed in SEEDS:
            trial.texts += play(env, seed)
        again = play(env, SEEDS[0])
    except BaseException as error:
        trial.fault = reason(error)
        return trial
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    if again != trial.texts[: len(again)]:
        trial.fault = "the same seed gives another game the second time"
    elif len({trial.texts[0], *(text for text in trial.texts if text.startswith("level "))}) < 3:
        trial.fault = "every seed starts the same game, so there would be one level only"
    return trial


def is_for_one(name: str) -> bool:
    """Whether the file of a game uses the state of games for one player; some others never start with one."""
    import textarena

    module, _, _ = textarena.envs.registration.ENV_REGISTRY[name].entry_point.partition(":")
    file = Path(str(textarena.__file__)).parents[1].joinpath(*module.split(".")).with_suffix(".py")
    return file.exists() and "SinglePlayerState" in file.read_text()


class TooSlow(BaseException):
    """Not an Exception: games catch those and try again."""


def too_slow(number: int, frame: FrameType | None) -> None:
    raise TooSlow(f"it takes more than {MAX_SECONDS} s to start and to answer")


def play(env: TextArenaEnv, seed: int) -> list[str]:
    """What the game says to a fixed list of answers."""
    texts = [f"level {env.reset(seed)} {env.level_content()}"]
    for answer in ANSWERS:
        result = env.step(answer)
        texts.append(f"{result.observation} {result.reward!r} {result.info}")
        if result.is_done:
            env.reset(seed)
    return texts


def reason(error: BaseException) -> str:
    """Why a game does not start, in one line."""
    text = " ".join(str(error).split())
    if "player" in text.lower():
        return NOT_FOR_ONE
    if isinstance(error, LookupError) and "nltk" in text.lower():
        corpus = re.search(r"Resource '?(\S+?)'? not found", text)
        return f"it needs the corpus {corpus[1] if corpus else ''} of NLTK, which would be fetched"
    if isinstance(error, TooSlow):
        return text
    if "API key" in text or "OPENROUTER" in text:
        return "it asks a model behind a paid interface"
    if isinstance(error, SyntaxError):
        return "its code is no Python 3.11"
    if isinstance(error, FileNotFoundError | ImportError):
        return "a part of it is missing from the package"
    if "not found in registry" in text:
        return "it has no version without wrappers"
    return f"it fails: {type(error).__name__}: {text[:120]}"
