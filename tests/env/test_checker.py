"""The shared checks pass for every registered type and catch what they are there for."""

import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

from ragen.env import REGISTRY, Env, StepResult, check_env, checker, make_env
from ragen.env.boundary import EnvFault
from ragen.env.checker import check_briefly
from ragen.env.registry import ADAPTERS
from ragen.seeding import Rng
from tests.env.text_envs import Echo, Polite

VARIANTS = [
    # The adapters are checked where their packages are, in tests/env/adapters.
    *((name, {}, name in ("frozen_lake", "game_2048")) for name in REGISTRY if name not in ADAPTERS),
    ("gymnasium", {}, True),
    ("bandit", {"split": "test", "action_space_start": 0}, False),
    ("sokoban", {"num_boxes": 1, "observation_format": "grid_coord"}, False),
    ("sokoban", {"dim_x": 8, "dim_y": 8, "num_boxes": 2, "search_depth": 10, "observation_format": "coord"}, False),
    ("frozen_lake", {"is_slippery": False}, False),
    ("countdown", {"num_numbers": 4, "max_steps": 1}, False),
    ("sudoku", {"size": 9, "num_givens": 30}, False),
    ("guess_number", {"num_numbers": 15, "max_first": 85, "max_steps": 4}, False),
    ("game_2048", {"size": 3, "target": 32, "start_moves": 6, "max_steps": 20}, True),
    ("sokoban", {"levels_file": "mixed.xsb", "split": "test", "observation_format": "grid_coord"}, False),
    ("frozen_lake", {"success_rate": 1.0, "observation_format": "grid_coord"}, False),
]


@pytest.mark.parametrize("env_type, config, has_noise", VARIANTS)
def test_every_environment_keeps_its_promises(env_type: str, config: dict, has_noise: bool):
    check_env(partial(make_env, env_type, config), seeds=range(5), has_noise=has_noise)


@dataclass(frozen=True)
class CountingConfig:
    """A config with a step limit."""

    max_steps: int = 3


class CountingEnv(Env):
    """Counts its steps up to the limit; the last one succeeds."""

    config_class = CountingConfig
    names = {1: "Count", 2: "Wait"}
    first = "0"

    def __init__(self, config: CountingConfig | None = None) -> None:
        super().__init__(config or CountingConfig())
        self.count = 0

    def reset(self, seed: int, member: int = 0) -> str:
        self.count = 0
        return self.first

    def step(self, action: int) -> StepResult:
        self.count += 1
        return StepResult(observation=self.render(), reward=self.reward(), is_done=self.is_done(), info=self.info())

    def render(self) -> str:
        return str(self.count)

    def is_done(self) -> bool:
        return self.count >= self.config.max_steps

    def reward(self) -> float:
        return 0.0

    def info(self) -> dict[str, float]:
        return {"action_is_valid": 1.0, "action_is_effective": 1.0, "success": float(self.is_done())}

    @property
    def actions(self) -> dict[int, str]:
        return self.names

    def solve(self) -> list[int] | None:
        return [1] * 3


class Endless(CountingEnv):
    def is_done(self) -> bool:
        return False


class NotFinite(CountingEnv):
    def reward(self) -> float:
        return float("nan")


class Huge(CountingEnv):
    def reward(self) -> float:
        return 1e300


class DoneArray(CountingEnv):
    def is_done(self) -> Any:
        return np.array([False, True])

    def info(self) -> dict[str, float]:
        return {"action_is_valid": 1.0, "action_is_effective": 1.0, "success": 0.0}


class DoneOne(CountingEnv):
    def is_done(self) -> Any:
        return int(super().is_done())


class OddKeys(CountingEnv):
    def info(self) -> Any:
        return super().info() | {3: 1.0}


class UnsureSuccess(CountingEnv):
    def info(self) -> dict[str, float]:
        return super().info() | {"success": float("nan")}


class NoNotes(CountingEnv):
    def notes(self) -> Any:
        return None


class Exiting(CountingEnv):
    def step(self, action: int) -> StepResult:
        sys.exit(0)


class Verbose(CountingEnv):
    first = "0" * 2_000_000

    def render(self) -> str:
        return self.first


class NoInfo(CountingEnv):
    def info(self) -> dict[str, float]:
        return {"success": 0.0}


class TwinActions(CountingEnv):
    names = {1: "Count", 2: "COUNT"}


class OtherRender(CountingEnv):
    first = "start"


class WrongSolution(CountingEnv):
    def solve(self) -> list[int] | None:
        return [1]


class MemberText(CountingEnv):
    def reset(self, seed: int, member: int = 0) -> str:
        self.count = member
        return str(member)


class Salted(CountingEnv):
    """Its level comes from Python's own hash, which differs from process to process."""

    def __init__(self, config: CountingConfig | None = None) -> None:
        super().__init__(config)
        self.level = str(hash("level"))

    def reset(self, seed: int, member: int = 0) -> str:
        self.count = 0
        return self.level

    def render(self) -> str:
        return self.level


def test_a_good_environment_passes():
    check_env(CountingEnv, seeds=[0, 1])


@pytest.mark.parametrize(
    "broken, reason",
    [
        (Endless, "max_steps"),
        (NotFinite, "finite"),
        (Huge, "a reward 1e\\+300"),
        (DoneArray, "True or False"),
        (DoneOne, "is_done must be True or False, got 0"),
        (OddKeys, "short texts as keys, got 3"),
        (UnsureSuccess, "finite number for 'success'"),
        (NoNotes, "notes returned None"),
        (Exiting, r"not exit, got SystemExit\(0\)"),
        (Verbose, "at most 1,000,000 characters"),
        (NoInfo, "action_is_valid"),
        (TwinActions, "differ by more than capital letters"),
        (OtherRender, "render"),
        (WrongSolution, "success"),
        (MemberText, "differs from"),
        (Salted, "fresh process"),
    ],
)
def test_a_broken_promise_is_named(broken: type[CountingEnv], reason: str):
    with pytest.raises(AssertionError, match=reason):
        check_env(broken, seeds=[0])


# --- free text ------------------------------------------------------------------------------------------------------


class Frail(Echo):
    """Cannot bear a long number."""

    def step(self, action: str) -> StepResult:
        return super().step(str(int(action)) if action.startswith("9" * 100) else action)


class BadExample(Echo):
    def example_answer(self) -> str:
        return "# no"


class OtherExample(Echo):
    def reset(self, seed: int, member: int = 0) -> str:
        self.member = member
        return super().reset(seed, member)

    def example_answer(self) -> str:
        return f"member {self.member}"


class WrongText(Polite):
    def solve(self) -> list[Any] | None:
        return ["open"]


class Rambling(Echo):
    def sample_text(self, rng: Rng) -> Any:
        return 7


class TooLong(Echo):
    max_tokens = 0  # type: ignore[assignment]


class Twofold(Echo):
    def step(self, action: str) -> StepResult:
        result = super().step(action)
        object.__setattr__(result, "is_done", not result.is_done)
        return result


class SaltedSteps(Echo):
    """Its first texts are those of every process, its later ones are not."""

    def render(self) -> str:
        return f"{len(self.heard)} {hash('later') if self.heard else ''}"


class Unpicklable(Echo):
    def step(self, action: str) -> StepResult:
        class Local(float):
            pass

        result = super().step(action)
        result.info["mood"] = Local(1.0)
        return result


@pytest.mark.parametrize("good", [Echo, Polite])
def test_a_good_environment_of_free_text_passes(good: type[Echo]):
    check_env(good, seeds=[0, 1])


@pytest.mark.parametrize(
    "broken, reason",
    [
        (Frail, "Exceeds the limit"),
        (BadExample, "example answer '# no' of seed 0 is reported as invalid"),
        (OtherExample, "texts of the prompt of member 1 differ"),
        (WrongText, "does not end with success"),
        (Rambling, "sample_text returned 7"),
        (TooLong, "max_tokens is 0: expected a number of tokens"),
        (Twofold, "is_done True, terminated False and truncated False"),
        (SaltedSteps, "other texts in a fresh process"),
        (Unpicklable, "pickle"),
    ],
)
def test_a_broken_promise_of_free_text_is_named(broken: type[Echo], reason: str):
    with pytest.raises(AssertionError, match=reason):
        check_env(broken, seeds=[0])


# --- the part that a run begins with --------------------------------------------------------------------------------


class Raising(Echo):
    def step(self, action: str) -> StepResult:
        raise ZeroDivisionError("broken")


class Tuple(Echo):
    def step(self, action: str) -> Any:
        return "text", 1.0, True, {}


class Silent(Echo):
    """Reports nothing but its reward."""

    def step(self, action: str) -> StepResult:
        return StepResult(observation=self.render(), reward=1.0, terminated=True)


class Quitting(Echo):
    def step(self, action: str) -> StepResult:
        sys.exit(3)


class Unsteady(Echo):
    """Another level with every reset."""

    def reset(self, seed: int, member: int = 0) -> str:
        return super().reset(time.perf_counter_ns())


class Renumbering(Echo):
    def render(self) -> str:
        self.count = getattr(self, "count", 0) + 1
        return str(self.count)


class Guessing(Echo):
    def sample_text(self, rng: Rng) -> str:
        return str(rng.randint(0, 9))  # type: ignore[attr-defined]


class Sharing(CountingEnv):
    def reset(self, seed: int, member: int = 0) -> str:
        Sharing.level = seed  # type: ignore[attr-defined]
        return super().reset(seed, member) and self.render()

    def render(self) -> str:
        return f"level {Sharing.level}"  # type: ignore[attr-defined]


class OnlyNumbers(Echo):
    def step(self, action: str) -> StepResult:
        return super().step(str(int(action)))


BROKEN = [
    (Raising, r"ZeroDivisionError: broken \(test_checker.py:\d+ in step\)"),
    (Tuple, "which has no observation; expected a StepResult"),
    (Silent, "an info without 'success'"),
    (Quitting, "SystemExit: 3"),
    (Unsteady, "differs from reset"),
    (Sharing, r"reset\(1\) of a second environment changed what the first one shows on level 0"),
    (Renumbering, r"render\(\)"),
    (Guessing, "has no attribute 'randint'.*in sample_text"),
    (OnlyNumbers, "invalid literal for int"),
    (NotFinite, "finite"),
    (NoInfo, "lacks action_is_valid, action_is_effective: step_info"),
    (MemberText, "differs from"),
]


@pytest.mark.parametrize("broken, reason", BROKEN)
def test_a_brief_check_names_what_a_run_would_stumble_over(broken, reason, monkeypatch):
    monkeypatch.setattr(checker, "QUICK_S", float("inf"))  # however busy the machine
    with pytest.raises(EnvFault, match=reason):
        check_briefly(broken, 0, limit_s=60)
    with pytest.raises(AssertionError, match=reason):
        check_env(broken, seeds=[0])


@pytest.mark.parametrize(
    "good", [Echo, Polite, CountingEnv, *(partial(make_env, name) for name in ("lookup", "sokoban"))]
)
def test_a_brief_check_passes_what_keeps_its_promises(good, monkeypatch):
    monkeypatch.setattr(checker, "QUICK_S", float("inf"))
    check_briefly(good, 0, limit_s=None)


def test_numbers_of_numpy_are_no_reason_to_refuse_a_run():
    class Numpy(CountingEnv):
        def reward(self) -> Any:
            return np.float32(0.5)

        def is_done(self) -> Any:
            return np.bool_(self.count >= 3)

    check_briefly(Numpy, 0, limit_s=60)


def test_a_slow_environment_is_tried_with_one_action(monkeypatch):
    monkeypatch.setattr(checker, "QUICK_S", 0.0)
    made: list[Echo] = []

    def make() -> Echo:
        made.append(Echo())
        return made[-1]

    check_briefly(make, 0, limit_s=60)
    [env] = made
    assert env.heard == [checker.SHORT[0]]


class Hanging(Echo):
    def step(self, action: str) -> StepResult:
        while True:
            time.sleep(0.01)


class HangingActions(CountingEnv):
    @property
    def actions(self) -> dict[int, str]:
        while True:
            time.sleep(0.01)


@pytest.mark.parametrize(
    "hanging, call",
    [(Hanging, r"step did not return within 0.3 s \(test_checker.py:\d+ in step\)"), (HangingActions, "^actions did")],
)
def test_a_call_that_never_returns_is_named(hanging, call):
    with pytest.raises(AssertionError, match=call):
        check_env(hanging, seeds=[0], limit_s=0.3)
    with pytest.raises(EnvFault, match=call):
        check_briefly(hanging, 0, limit_s=0.3)


def test_many_calls_may_take_longer_than_one(monkeypatch):
    step = Echo.step

    def slow(self, action: str) -> StepResult:
        time.sleep(0.06)
        return step(self, action)

    monkeypatch.setattr(Echo, "step", slow)
    check_env(Echo, seeds=[0], limit_s=1.0)  # about twenty steps in one process
