"""An environment with every bad habit, one at a time: config.fault names it, config.failing_seed the level with it."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from ragen.env import Env, StepResult


@dataclass(frozen=True, kw_only=True)
class MisbehavingConfig:
    fault: str = ""
    failing_seed: int = 8


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("nothing to see")

    def __float__(self) -> float:
        raise SystemExit(0)


class WildText(str):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    def strip(self, *_: Any) -> Any:
        raise RuntimeError("no strip")


def spin() -> None:
    while True:
        pass


INFO: dict[Any, Any] = {"action_is_valid": 1.0, "action_is_effective": 1.0, "success": 1.0}


def raising(error: BaseException) -> Any:
    def call(*_: Any) -> Any:
        raise error

    return call


def result(**changes: Any) -> Any:
    class Result:
        pass

    made = Result()
    for name, value in ({"observation": "over", "reward": 1.0, "is_done": True, "info": INFO} | changes).items():
        if value is not Ellipsis:
            setattr(made, name, value)
    return lambda *_: made


STEPS: dict[str, Any] = {
    "raises": raising(ValueError("no way")),
    "raises a text of 20 MB": raising(ValueError("x" * 20_000_000)),
    "raises with escapes": raising(ValueError("\x1b[2J\x1b]0;owned\x07")),
    "raises what cannot be printed": raising(Unspeakable()),
    "raises an exit": lambda *_: sys.exit(0),
    "raises a generator exit": raising(GeneratorExit()),
    "raises a time-out": raising(TimeoutError("socket")),
    "raises a recursion": lambda *_: STEPS["raises a recursion"](),
    "returns None": lambda *_: None,
    "returns a tuple": lambda *_: ("over", 1.0, True, False, {}),
    "no is_done": result(is_done=...),
    "is_done is an array": result(is_done=np.array([True, False])),
    "is_done is None": result(is_done=None),
    "is_done is a text": result(is_done="False"),
    "is_done is 2": result(is_done=2),
    "is_done is NaN": result(is_done=float("nan")),
    "reward is NaN": result(reward=float("nan")),
    "reward is inf": result(reward=float("inf")),
    "reward is beyond a float": result(reward=10**400),
    "reward is huge": result(reward=1e308),
    "reward is a text": result(reward="1.0"),
    "reward is an array": result(reward=np.array([1.0, 2.0])),
    "reward is None": result(reward=None),
    "reward is complex": result(reward=1j),
    "reward is wild": result(reward=Unshowable()),
    "observation is None": result(observation=None),
    "observation is bytes": result(observation=b"over"),
    "observation is endless": result(observation="x" * 2_000_000),
    "info is None": result(info=None),
    "info is a list": result(info=[1.0]),
    "info has a number as key": result(info=INFO | {3: 1.0}),
    "info has a tuple as key": result(info=INFO | {(1, 2): 1.0}),
    "info has an empty key": result(info=INFO | {"": 1.0}),
    "info has a text": result(info=INFO | {"mood": "bad"}),
    "info has an array": result(info=INFO | {"board": np.zeros((2, 2))}),
    "info has NaN": result(info=INFO | {"distance": float("nan")}),
    "info has too much": result(info={f"key {number}": 1.0 for number in range(100_000)}),
    "info is not sure of success": result(info=INFO | {"success": float("nan")}),
    "info has no success to speak of": result(info=INFO | {"success": None}),
}
"""Fault -> what a step does."""
RESETS: dict[str, Any] = {
    "reset raises": raising(RuntimeError("no such level")),
    "reset exits": raising(SystemExit(0)),
    "reset returns None": lambda *_: None,
    "reset returns a pair": lambda *_: ("level", {}),
    "reset returns 2 MB": lambda *_: "x" * 2_000_000,
}
ACTIONS: dict[str, Any] = {
    "actions raise": raising(AttributeError("names")),
    "actions are None": lambda: None,
    "actions are a list": lambda: ["Up"],
    "actions are empty": lambda: {},
    "actions have no names": lambda: {1: ""},
    "actions are numbers": lambda: {1: 1},
    "actions are twins": lambda: {1: "Up", 2: "UP"},
}
NOTES: dict[str, Any] = {
    "notes raise": raising(LookupError("no notes")),
    "notes are None": lambda: None,
    "notes are a list": lambda: ["Symbols"],
}
HANGS: dict[str, Any] = {"step sleeps": lambda *_: time.sleep(3600), "step spins": lambda *_: spin()}
RESET_HANGS: dict[str, Any] = {"reset sleeps": lambda *_: time.sleep(3600)}


class MisbehavingEnv(Env):
    """One action solves a level; on the failing one the fault happens."""

    config_class = MisbehavingConfig

    def __init__(self, config: MisbehavingConfig) -> None:
        super().__init__(config)
        self.seed = -1

    @property
    def fault(self) -> str:
        return self.config.fault if self.seed == self.config.failing_seed else ""

    def reset(self, seed: int, member: int = 0) -> str:
        self.seed = seed
        return (RESETS | RESET_HANGS).get(self.fault, lambda *_: f"level {seed}")()

    def step(self, action: int) -> StepResult:
        return (STEPS | HANGS).get(self.fault, result())()

    def render(self) -> str:
        return f"level {self.seed}"

    @property
    def actions(self) -> dict[int, str]:
        return ACTIONS.get(self.fault, lambda: {1: "Up", 2: "Down"})()

    def notes(self) -> str:
        return NOTES.get(self.fault, lambda: "Go up.")()

    def close(self) -> None:
        if self.config.fault == "close raises":
            raise OSError("cannot close")
        if self.config.fault == "close exits":
            sys.exit(3)
