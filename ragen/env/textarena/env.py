"""A game of TextArena for one player as an environment. Nothing is fetched: games that need a corpus are refused.

Needs the extra: pip install -e '.[textarena]'.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

from ragen.env.base import StartedEnv, StepResult, step_info
from ragen.env.package_options import check_options
from ragen.env.shared_random import OwnRandom
from ragen.env.success_rule import parse_rule
from ragen.env.survey import read_survey
from ragen.errors import ConfigError, needing_extra
from ragen.seeding import fixed_hash

SURVEY = read_survey(Path(__file__).with_name("games.json"))
MAX_ANSWER = 1000
"""Characters of an answer that a game is given; it searches them with regular expressions and reads numbers in them."""
LOST = -1.0
"""What a game gives for an invalid move that ends it. Some give the reason in its place, which is no number."""
MAX_DEPTH = 20
"""Levels of a game's state that make up its level."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TextArenaConfig:
    """Which game, and its own options."""

    name: Annotated[str, "Game, such as Mastermind-v0; all of them are in docs/adapters.md."] = "GuessTheNumber-v0"
    options: Annotated[dict[str, Any], "Options of the game's own class, such as {max_turns: 10}."] = field(
        default_factory=dict
    )
    success: Annotated[str, "When a game counts as won, from its reward: games give 1 for a win, some give parts."] = (
        "reward >= 1"
    )

    def __post_init__(self) -> None:
        SURVEY.check(self.name, "textarena.name")
        parse_rule(self.success, "textarena.success")


class TextArenaEnv(StartedEnv):
    """One game. An observation is what the game has said since the last answer; the reward comes at its end."""

    config_class = TextArenaConfig
    max_tokens = 300

    def reset(self, seed: int, member: int = 0) -> str:
        """Start the game of `seed`; what it draws later follows from `seed` and `member`."""
        number = fixed_hash(seed, "textarena") % 2**31
        with OwnRandom(number):
            self.game = make_game(self.config.name, self.config.options)
            self.game.reset(num_players=1, seed=number)
            self.content = canonical(level_of(self.game))
            self.text = self.read()
        self.random = OwnRandom(fixed_hash(seed, "textarena", member) % 2**31)
        self.is_done = False
        return self.text

    def read(self) -> str:
        """What the game has said since the last time; the echo of the player's own answers is left out."""
        _, messages = self.game.get_observation()
        said = [message.strip() for sender, message, _ in messages if sender == GAME]
        return "\n".join(text for text in said if text)

    def step(self, action: str) -> StepResult:
        """Give the game an answer; one without brackets is put into them, as the games want it."""
        assert not self.is_done, "the episode is over: call reset"
        if len(action) > MAX_ANSWER:
            self.text = f"Your answer has {len(action)} characters; at most {MAX_ANSWER} are read."
            info = step_info(is_valid=False, is_effective=False, is_success=False)
            return StepResult(observation=self.text, reward=0.0, info=info)
        state, before = self.game.state, self.text
        errors = getattr(state, "error_count", 0)
        with self.random:
            self.is_done, _ = self.game.step(as_move(action))
            said = self.read()
        self.is_done = bool(self.is_done)
        is_valid = getattr(state, "error_count", 0) <= errors and not state.game_info[0].get("invalid_move")
        reward = self.reward() if self.is_done else 0.0
        if self.is_done:
            said = "\n".join(text for text in (said, str(state.game_info[0].get("reason") or "")) if text)
        self.text = said or before
        rule = parse_rule(self.config.success, "textarena.success")
        is_won = self.is_done and rule(reward=reward, is_terminated=self.is_done, info={})
        is_out_of_turns = self.is_done and not is_won and is_valid and at_limit(state)
        return StepResult(
            observation=self.text,
            reward=reward,
            terminated=self.is_done and not is_out_of_turns,
            truncated=is_out_of_turns,
            info=step_info(is_valid=is_valid, is_effective=is_valid and bool(said), is_success=is_won),
        )

    def reward(self) -> float:
        """What the finished game gives."""
        rewards, _ = self.game.close()
        reward = (rewards or {}).get(0, 0.0)
        return LOST if isinstance(reward, str) else float(reward)

    def render(self) -> str:
        return self.text

    def level_content(self) -> str:
        """The state of the game at its start: what is hidden from the player makes the level, too."""
        return self.content


GAME = -1
"""Who speaks for the game in its messages."""


def as_move(text: str) -> str:
    """ "up" -> "[up]"; what holds brackets stays."""
    text = text.strip().encode("utf-8", "replace").decode()
    return text if "[" in text and "]" in text else f"[{text}]"


def at_limit(state: Any) -> bool:
    """Whether a game has used up its turns."""
    return state.max_turns is not None and state.turn >= state.max_turns


def make_game(name: str, options: dict[str, Any]) -> Any:
    """A game without the wrappers that rewrite its texts."""
    with needing_extra("textarena", f"textarena.name {name!r} needs TextArena, which is not installed"):
        nltk: Any = import_module("nltk")
        package = import_module("textarena")
    before, nltk.download = nltk.download, refuse_download
    try:
        module, _, game = package.envs.registration.ENV_REGISTRY[f"{name}-raw"].entry_point.partition(":")
        check_options(options, getattr(import_module(module), game), "textarena.options")
        return package.make(f"{name}-raw", **options)
    except (TypeError, ValueError, AssertionError) as error:
        raise ConfigError(f"textarena.options {options} for {name!r}: {error}") from error
    finally:
        nltk.download = before


def refuse_download(*args: Any, **kwargs: Any) -> bool:
    """Stands for nltk.download, which games call when they are imported."""
    logging.getLogger(__name__).info("TextArena asked for the corpus %s; nothing is fetched.", args)
    return False


def level_of(game: Any) -> dict[str, Any]:
    """What a game holds at its start; some keep the board in their state, some in attributes of their own."""
    own = {name: value for name, value in vars(game).items() if name != "state"}
    return {"state": game.state.game_state, "game": own}


def canonical(value: Any, depth: int = MAX_DEPTH) -> str:
    """A state as text that is the same in every process; objects by their type and attributes."""
    if value is None or isinstance(value, str | int | float | bool):
        return repr(value)
    if depth == 0:
        return "..."
    if isinstance(value, dict):
        entries = [f"{canonical(key, depth - 1)}: {canonical(entry, depth - 1)}" for key, entry in value.items()]
        return "{" + ", ".join(sorted(entries)) + "}"
    if isinstance(value, set | frozenset):
        return "{" + ", ".join(sorted(canonical(entry, depth - 1) for entry in value)) + "}"
    if hasattr(value, "tolist"):
        return canonical(value.tolist(), depth - 1)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(canonical(entry, depth - 1) for entry in value) + "]"
    if hasattr(value, "__dict__"):
        return f"{type(value).__name__}{canonical(vars(value), depth - 1)}"
    return type(value).__name__
