"""The border to environments that others wrote: every call into one returns checked values or raises an EnvFault.

An environment may do anything: raise, exit, return arrays, numbers without end or twenty megabytes of text. Behind
this border there are texts, finite numbers and one kind of error, whose message can be stored and printed.
"""

from __future__ import annotations

import math
import os
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from ragen.env.base import Env, StepResult, TextEnv
from ragen.env.registry import make_env
from ragen.env.tools import MAX_TOOLS, PROBLEMS, Tool, check_tool
from ragen.errors import RagenError
from ragen.seeding import Rng
from ragen.text import MAX_ERROR, safe

T = TypeVar("T")
_Passing = type[BaseException] | tuple[type[BaseException], ...]

MAX_OBSERVATION = 1_000_000
"""Characters of an observation or of notes; more fits into no context."""
MAX_REWARD = 1e15
"""Largest size of a reward, and of the sum of an episode: squares of more overflow in float32."""
MAX_INFOS = 100
"""Infos of a step, each of which becomes a metric."""
MAX_NAME = 200
"""Characters of an action's name or an info's key."""
MAX_SHOWN = 200
"""Characters of a wrong value that a message quotes."""
NUM_CALLS_SHOWN = 4
"""Last calls of a traceback that are logged."""


class EnvFault(Exception):
    """An environment failed. The text says how; it is short and printable."""

    def __init__(self, text: str, *, trace: str = "") -> None:
        super().__init__(text)
        self.trace = trace
        """The last lines of the traceback, where the environment raised."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EpisodeStart:
    """What an environment tells at the start of an episode, on its level."""

    observation: str
    actions: dict[Any, str] | None
    """Action id -> name; None where any text is an answer."""
    notes: str
    system_prompt: str
    """The environment's own system message; empty where it has none."""
    example: str
    """The environment's own example answer; empty where it has none."""
    max_tokens: int | None
    """The environment's own length of a reply."""
    tools: tuple[Tool, ...]
    """What a reply may call; empty in most environments."""
    content: str
    """What makes the level this one; empty where its first observation does."""


def make(env_type: str, env_config: Mapping[str, Any] | None) -> TextEnv:
    """A new environment; a wrong option stays the error of the user that it is."""
    return guarded(make_env, env_type, env_config, passing=RagenError)


def start(env: TextEnv, seed: int, member: int) -> EpisodeStart:
    """Reset an environment and read what the first prompt needs."""
    observation = guarded(env.reset, seed, member)
    return EpisodeStart(
        observation=_checked(as_text, observation, "reset returned an observation"),
        actions=_checked(as_actions, guarded(lambda: env.actions), "actions is") if isinstance(env, Env) else None,
        notes=_checked(as_text, guarded(lambda: env.notes()), "notes returned"),
        system_prompt=_checked(as_text, guarded(lambda: env.system_prompt()), "system_prompt returned"),
        example=_checked(as_text, guarded(lambda: env.example_answer()), "example_answer returned"),
        max_tokens=_checked(as_length, guarded(lambda: env.max_tokens), "max_tokens is"),
        tools=_checked(as_tools, guarded(lambda: env.tools()), "tools returned"),
        content=_checked(as_text, guarded(lambda: env.level_content()), "level_content returned"),
    )


def step(env: TextEnv, action: Any) -> StepResult:
    """Do one action. The result is a copy: what the environment does to its own later changes nothing."""
    return check_step(guarded(env.step, action))


def check_step(result: Any) -> StepResult:
    """What a step returned, checked and copied."""
    parts = guarded(lambda: {name: getattr(result, name) for name in (*_NEEDED, *_OPTIONAL) if hasattr(result, name)})
    for name in _NEEDED:
        if name not in parts:
            raise EnvFault(f"step returned {quote(result)}, which has no {name}; expected a StepResult.")
    # What knows one flag alone was ended by its task.
    parts = _OPTIONAL | {"terminated": parts["is_done"]} | parts
    flags = ("is_done", "terminated", "truncated")
    is_done, terminated, truncated = (_checked(as_flag, parts[name], f"step returned {name}") for name in flags)
    if is_done != (terminated or truncated):
        raise EnvFault(f"step returned is_done {is_done}, terminated {terminated} and truncated {truncated}.")
    info = _checked(as_info, parts["info"], "step returned an info")
    if "success" not in info:  # nobody could tell whether the level is solved
        raise EnvFault(f"step returned an info without 'success', {quote(info)}: step_info(...) makes what it needs.")
    return StepResult(
        observation=_checked(as_text, parts["observation"], "step returned an observation"),
        reward=_checked(as_reward, parts["reward"], "step returned a reward"),
        terminated=terminated,
        truncated=truncated,
        info=info,
        tool_result=_checked(as_tool_result, parts["tool_result"], "step returned a tool_result"),
        tool_problem=_checked(as_problem, parts["tool_problem"], "step returned a tool_problem"),
    )


_NEEDED = ("observation", "reward", "is_done", "info")
_OPTIONAL = {"terminated": False, "truncated": False, "tool_result": None, "tool_problem": ""}


def solve(env: TextEnv) -> list[Any] | None:
    """The actions of a solution (ids, or texts), or None."""
    plan = guarded(env.solve)
    return None if plan is None else guarded(list, plan)


def hint(env: TextEnv) -> str:
    return _checked(as_text, guarded(env.hint), "hint returned")


def sample_text(env: TextEnv, rng: Rng) -> str | None:
    """A random answer, or None where the environment knows none."""
    text = guarded(env.sample_text, rng)
    return None if text is None else _checked(as_text, text, "sample_text returned")


def guarded(call: Callable[..., T], *args: Any, passing: _Passing = ()) -> T:
    """Call into an environment. Whatever it raises is an EnvFault, sys.exit() too; only Ctrl-C goes through.

    A process that the environment forked and did not end, ends here: it would play on, and fork again.
    """
    process = os.getpid()
    try:
        return call(*args)
    except (KeyboardInterrupt, EnvFault):
        raise
    except passing:
        raise
    except BaseException as error:
        fault = EnvFault(describe(error), trace=_last_lines(error))
    finally:
        if os.getpid() != process:
            os._exit(1)
    raise fault  # outside of the except block: what was raised may be large, and is not kept


def describe(error: BaseException) -> str:
    """Type, message and origin of an exception: "ValueError: no way (env.py:31 in step)"."""
    name = type(error).__name__
    try:
        message = str.__str__(str(error))
    except BaseException as second:  # an exception's own __str__ is the environment's code, too
        message = f"(its message cannot be read: __str__ raised {type(second).__name__})"
    frames = list(traceback.walk_tb(error.__traceback__))
    # The first frame is the one that called the environment.
    where = origin(*frames[-1]) if len(frames) > 1 else ""
    return safe(f"{name}: {message}" if message else name, MAX_ERROR - len(where)) + where


def origin(frame: FrameType, line: int | None = None) -> str:
    """Where a frame is: " (env.py:31 in step)"."""
    code = frame.f_code
    return f" ({Path(code.co_filename).name}:{line or frame.f_lineno} in {code.co_name})"


def _last_lines(error: BaseException) -> str:
    """The calls that led to an exception, the last few of them, in Python's form."""
    calls = error.__traceback__.tb_next if error.__traceback__ else None  # without the one that is ours
    try:
        return safe("".join(traceback.format_tb(calls, limit=-NUM_CALLS_SHOWN)).rstrip())
    except BaseException:  # reading its source may fail in any way
        return ""


def quote(value: object) -> str:
    """A wrong value as a message shows it."""
    try:
        text = repr(value)
    except BaseException as error:
        text = f"a {type(value).__name__} whose repr raises {type(error).__name__}"
    return " ".join(safe(text, MAX_SHOWN).split())


# --- what values must be; a ValueError says what was expected


def as_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("expected a text")
    if len(value) > MAX_OBSERVATION:
        raise ValueError(f"expected at most {MAX_OBSERVATION:,} characters, it has {len(value):,}")
    return str.__str__(value)  # a subclass may behave in any way


def as_length(value: object) -> int | None:
    if value is not None and (type(value) is not int or value < 1):
        raise ValueError("expected a number of tokens, at least 1, or None")
    return value


def as_tools(value: Any) -> tuple[Tool, ...]:
    if not isinstance(value, list | tuple) or len(value) > MAX_TOOLS:
        raise ValueError(f"expected a list of at most {MAX_TOOLS} tools")
    tools = tuple(map(check_tool, value))
    if len({tool.name for tool in tools}) < len(tools):
        raise ValueError("expected tools of different names")
    return tools


def as_tool_result(value: object) -> str | None:
    return None if value is None else as_text(value)


def as_problem(value: object) -> str:
    if value not in ("", *PROBLEMS):
        raise ValueError(f"expected one of {', '.join(PROBLEMS)}, or an empty text")
    return str(value)


def as_number(value: Any) -> float:
    """A finite number; 0-dimensional arrays and tensors count as numbers, texts and longer arrays do not."""
    if isinstance(value, (str, bytes, bytearray)) or getattr(value, "ndim", 0) != 0:
        raise ValueError("expected a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    except Exception as error:
        raise ValueError("expected a number") from error
    if not math.isfinite(number):
        raise ValueError("expected a finite number")
    return number


def as_reward(value: Any) -> float:
    number = as_number(value)
    if abs(number) > MAX_REWARD:
        raise ValueError(f"expected a number between -{MAX_REWARD:g} and {MAX_REWARD:g}")
    return number


def as_flag(value: Any) -> bool:
    with suppress(ValueError):
        if (number := as_number(value)) in (0, 1):
            return number == 1
    raise ValueError("expected True or False")


def as_info(value: Any) -> dict[str, float]:
    if not isinstance(value, Mapping):
        raise ValueError("expected a dictionary of numbers")
    if len(value) > MAX_INFOS:
        raise ValueError(f"expected at most {MAX_INFOS} entries, it has {len(value):,}")
    info = {}
    for key, entry in value.items():
        if not (isinstance(key, str) and 0 < len(key) <= MAX_NAME and key.isprintable()):
            raise ValueError(f"expected short texts as keys, got {quote(key)}")
        try:
            info[str.__str__(key)] = as_number(entry)
        except ValueError as error:
            raise ValueError(f"{error} for {key!r}, got {quote(entry)}") from error
    return info


def as_actions(value: Any) -> dict[Any, str]:
    if not isinstance(value, Mapping) or not value:
        raise ValueError("expected a dictionary: action id -> name")
    actions = {}
    for action, name in value.items():
        if not (isinstance(name, str) and name.strip() and len(name) <= MAX_NAME):
            raise ValueError(f"expected short texts as names, got {quote(name)}")
        actions[action] = str.__str__(name)
    if len({name.strip().lower() for name in actions.values()}) < len(actions):
        raise ValueError("expected names that differ by more than capital letters")
    return actions


def _checked(check: Callable[[Any], T], value: object, what: str) -> T:
    """The checked value; `what` begins the message: "step returned a reward 'much': expected a number."."""
    try:
        return check(value)
    except ValueError as error:
        wrong = safe(str(error))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a value's own methods are the environment's code, too
        wrong = describe(error)
    raise EnvFault(f"{what} {quote(value)}: {wrong}.")
