"""Levels that a person plays, with the prompts, the parsing and the environments of a rollout.

A session is one episode in memory: its number and the time for which nobody plays it are bounded, and nothing of it is
written anywhere. Environments are called across their border, within a time limit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ragen.config.extensions import is_path
from ragen.config.load import load_config, load_run_config, to_dict
from ragen.config.schema import Config
from ragen.engine.base import Completion, Engine, StopReason
from ragen.env import boundary
from ragen.errors import RagenError
from ragen.files import stamp
from ragen.llm_agent.agent_proxy import MAX_TEXT, forced_prefix
from ragen.llm_agent.build import build_proxy
from ragen.llm_agent.env_calls import TagCalls
from ragen.llm_agent.env_threads import Clock
from ragen.llm_agent.es_manager import Seat, play_in_order
from ragen.llm_agent.parsing import ANSWER
from ragen.types import Episode, Message
from ragen.view.reading.boards import frame_of
from ragen.view.reading.episodes import to_turn
from ragen.view.reading.folders import NotThere
from ragen.view.reading.settings import read_settings
from ragen.view.reading.tokens import Decoder

MOST_SESSIONS = 32
IDLE_S = 3600.0
"""Seconds after which a level that nobody plays is given up."""
LIMIT_S = 20.0
"""Longest time of a call into an environment, also where the tag allows more: somebody waits for it."""
REMOTE = ("openenv",)
"""Types of environments behind an address."""
LARGEST = 2**53 - 1
"""What a browser counts to."""
NO_TOKENS = Decoder(reason="A person writes no tokens.")

_composing = threading.Lock()  # Hydra holds what it composes in a global


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Level:
    """What is played."""

    run: Path | None
    """The run whose configuration counts; None for the default one."""
    tag: str
    seed: int
    member: int = 0
    """Fixes the noise of the dynamics, as for the members of a group."""


def config_of(run: Path | None) -> Config:
    """The configuration of a run, or the default one."""
    version = stamp(run / "config.yaml") if run is not None else None
    with _composing:
        return _load(run, version)


@functools.lru_cache(maxsize=8)
def _load(run: Path | None, version: Any) -> Config:
    return load_config() if run is None else load_run_config((), run)


def settings_of(run: Path | None) -> Mapping[str, Any]:
    return to_dict(config_of(None)) if run is None else read_settings(run)


def describe(run: Path | None) -> dict[str, Any]:
    """What can be played: the tags of the configuration, those that the run plays first, and a level to begin with."""
    config = config_of(run)
    played = [*config.es_manager.train.env_configs.tags, *config.es_manager.val.env_configs.tags]
    specs = {tag: config.custom_envs[tag] for tag in [*played, *config.custom_envs]}
    return {
        "tags": [{"tag": tag, "env_type": spec.env_type, "is_played": tag in played} for tag, spec in specs.items()],
        "seed": config.seed.val,
        "temperature": config.actor_rollout_ref.rollout.temperature,
    }


def refuse_foreign(env_type: str, reward_function: str | None) -> None:
    """What a run directory says neither loads code nor opens addresses here."""
    for part in (env_type, reward_function):
        if part is not None and is_path(part):
            raise RagenError(
                f"{part[:80]} is code that the run's configuration names, and this page loads none. From Python it can "
                "be played: ragen.Agent, docs/python.md."
            )
    if env_type in REMOTE:
        raise RagenError(f"Environments of the type {env_type} are asked over the network; this page asks nobody.")


class Session:
    """One episode that is played turn by turn."""

    def __init__(self, level: Level) -> None:
        self.level, self.config = level, config_of(level.run)
        spec = self.config.custom_envs.get(level.tag)
        if spec is None:
            raise NotThere(f"The configuration has no environment {level.tag[:80]!r}.")
        refuse_foreign(spec.env_type, self.config.es_manager.reward_function)
        self.lock = threading.Lock()
        self.used_at = time.monotonic()
        limited = dataclasses.replace(
            spec, step_timeout=min(spec.step_timeout or LIMIT_S, LIMIT_S), parallel_friendly=False, max_workers=1
        )
        calls = TagCalls(level.tag, limited)
        self.seat = Seat(tag=level.tag, spec=limited, calls=calls, env=None, group_id=0, member=level.member)
        self.seat.reset(level.seed)
        # Without a chat the messages stay texts, as for an engine that is asked over the network.
        self.proxy = build_proxy(self.config, Engine(), None)
        self.play = self.proxy.start(self.seat)
        self.is_over = not self.proxy.prepare(self.play)

    @property
    def episode(self) -> Episode:
        return self.play.episode

    @property
    def messages(self) -> list[Message]:
        """The prompt of the next reply; empty at the end."""
        return [] if self.is_over or self.play.prompt is None else self.play.prompt.messages

    def answer(self, completion: Completion) -> None:
        """Play a reply, as a rollout does."""
        if self.is_over:
            raise RagenError("This episode is over. Start the level again.")
        pending = self.proxy.read_reply(self.play, completion)
        if pending is not None:
            play_in_order([pending])
            self.proxy.finish_turn(self.episode, pending)
        self.is_over = not self.proxy.prepare(self.play)

    def say(self, text: str) -> None:
        """Play what a person wrote."""
        if len(text) > MAX_TEXT:
            raise RagenError(f"The reply has {len(text):,} characters; {MAX_TEXT:,} are the most that is read.")
        self.answer(Completion(session=0, text=text, stop_reason=StopReason.STOP_STRING))

    def solution(self) -> list[str] | None:
        """Names of the actions that solve the level from here; None where there is no solver, or no way."""
        env = self.seat.env

        def work(clock: Clock) -> list[Any] | None:
            clock.start("solve")
            return boundary.solve(env) if env is not None else None

        [found] = self.seat.calls.run([work])
        if isinstance(found, Exception):
            raise RagenError(f"The solver failed: {self.seat.calls.describe(found)}")
        return None if found is None else self.seat.spell(found)

    @property
    def max_actions(self) -> int:
        """Actions that the next answer may hold; of free text it is one."""
        most = 1 if self.seat.is_free_text else self.config.agent_proxy.max_actions_per_turn
        return min(most, max(1, self.seat.num_actions_left))

    def close(self) -> None:
        self.seat.calls.close([self.seat.env] if self.seat.env is not None else [])

    def reply_of(self, actions: list[str]) -> str:
        """Actions as a reply of the required form."""
        agent = self.config.agent_proxy
        thought = "<think></think>" if agent.enable_think else ""
        return thought + f" {agent.action_sep} ".join(actions).join(ANSWER)

    def to_json(self) -> dict[str, Any]:
        agent, seat, episode = self.config.agent_proxy, self.seat, self.episode
        return to_line(episode, settings_of(self.level.run)) | {
            "is_over": self.is_over,
            "seed": episode.seed,
            "member": episode.member,
            "system": episode.system,
            "messages": self.messages,
            "actions": list((seat.actions or {}).values()),
            "actions_left": seat.num_actions_left,
            "turns_left": agent.max_turn - len(episode.turns),
            "max_actions": self.max_actions,
            "action_sep": agent.action_sep,
            "has_thought": agent.enable_think,
            "prefix": forced_prefix(agent.enable_think),
        }


def to_line(episode: Episode, settings: Mapping[str, Any]) -> dict[str, Any]:
    """An episode as the page draws it."""
    return {
        "tag": episode.tag,
        "env_type": episode.env_type,
        "status": episode.status.value,
        "error": episode.error,
        "reward": episode.reward,
        "penalty": episode.penalty,
        "turns": [to_turn(turn, episode, settings, NO_TOKENS) for turn in episode.turns],
        "final_frame": frame_of(episode, episode.final_observation, settings),
    }


def solve(level: Level) -> dict[str, Any]:
    """The solver's episode on a level; `missing` says why there is none."""
    with contextlib.closing(Session(level)) as session:
        until = time.monotonic() + LIMIT_S
        while not session.is_over and (plan := session.solution()):
            session.say(session.reply_of(plan[: session.max_actions]))
            if time.monotonic() > until:
                raise RagenError(f"The solver takes more than {LIMIT_S:g} s.")
        is_played = session.is_over or session.episode.turns
        missing = "" if is_played else "This environment has no solver, or the level no solution."
        return to_line(session.episode, settings_of(level.run)) | {"missing": missing}


class Sessions:
    """The levels that are played now, the one that rests longest first."""

    def __init__(self, *, most: int = MOST_SESSIONS, idle_s: float = IDLE_S) -> None:
        self.most, self.idle_s = most, idle_s
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def start(self, level: Level) -> tuple[str, Session]:
        """A new episode and the name under which it is found again."""
        session, name = Session(level), secrets.token_urlsafe(12)
        with self._lock:
            self._sessions[name] = session
        self._close_leaving()
        return name, session

    def find(self, name: str) -> Session:
        self._close_leaving()
        with self._lock:
            session = self._sessions.get(name)
            if session is not None:
                self._sessions.move_to_end(name)
                session.used_at = time.monotonic()
        if session is None:
            raise NotThere("This level is not played any more: the server was restarted, or others are played.")
        return session

    def __len__(self) -> int:
        return len(self._sessions)

    def _close_leaving(self) -> None:
        """End those that rest too long or are too many."""
        now, left = time.monotonic(), []
        with self._lock:
            for name, session in list(self._sessions.items()):
                if now - session.used_at > self.idle_s or len(self._sessions) > self.most:
                    left.append(self._sessions.pop(name))
        for session in left:
            session.close()


def level_of(run: Path | None, fields: Mapping[str, Any]) -> Level:
    """A level from what a request says: {"tag": "FrozenLake", "seed": 7, "member": 0}"""
    return Level(
        run=run,
        tag=str(fields.get("tag", "")),
        seed=whole_number(fields, "seed"),
        member=whole_number(fields, "member"),
    )


def whole_number(fields: Mapping[str, Any], name: str) -> int:
    """A whole number, as a number or as its digits; 0 where none is given.

    Null is refused: JavaScript writes it for NaN, which it makes of a text that is no number.
    """
    value = fields.get(name, "")
    if value == "":
        return 0
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 19:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LARGEST:
        raise RagenError(f"{name}={str(value)[:40]!r}: expected a whole number from 0 to {LARGEST}.")
    return value


def check_turn(session: Session, turn: Any) -> None:
    """A reply is to the prompt that was seen: pressed twice, or in two windows, it counts once."""
    if turn != len(session.episode.turns):
        raise RagenError("This turn has been answered already.")
