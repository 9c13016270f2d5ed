"""Behind the boundary there are texts, finite numbers and one kind of error, whatever an environment does."""

import math
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from ragen.env import StepResult, boundary, make_env
from ragen.env.boundary import EnvFault, as_actions, as_flag, as_info, as_number, as_text, describe, guarded
from ragen.errors import ConfigError


class Shouting(str):
    """A text that is not what it says."""

    def __str__(self) -> str:
        return self.upper()


@pytest.mark.parametrize(
    ("check", "value", "expected"),
    [
        (as_text, Shouting("wall"), "wall"),
        (as_number, np.float32(0.5), 0.5),
        (as_number, np.array(3), 3.0),
        (as_flag, np.bool_(True), True),
        (as_flag, 0.0, False),
        (as_info, {"n": np.int64(2)}, {"n": 2.0}),
        (as_actions, {1: "Up", 2: "Down"}, {1: "Up", 2: "Down"}),
    ],
)
def test_values_become_plain_ones(check, value, expected):
    result = check(value)
    assert result == expected and type(result) is type(expected)


@pytest.mark.parametrize(
    ("check", "value", "reason"),
    [
        (as_text, None, "expected a text"),
        (as_text, "x" * 1_000_001, "at most 1,000,000 characters"),
        (as_number, "3", "expected a number"),
        (as_number, np.ones(2), "expected a number"),
        (as_number, 10**400, "finite"),
        (as_number, math.nan, "finite"),
        (as_flag, 2, "True or False"),
        (as_info, [("a", 1)], "a dictionary of numbers"),
        (as_info, {"a": "b"}, "for 'a', got 'b'"),
        (as_info, {"\n": 1}, "short texts as keys"),
        (as_actions, {}, "action id -> name"),
        (as_actions, {1: "Up", 2: "up "}, "capital letters"),
    ],
)
def test_what_no_environment_may_return_is_named(check, value, reason):
    with pytest.raises(ValueError, match=reason):
        check(value)


def test_a_step_is_checked_and_copied():
    info = {"success": 1}
    result = boundary.check_step(StepResult(observation="o", reward=1, is_done=True, info=info))
    info["success"] = 0
    assert (result.reward, result.info) == (1.0, {"success": 1.0})
    with pytest.raises(EnvFault, match="has no is_done; expected a StepResult"):
        boundary.check_step(SimpleNamespace(observation="", reward=0))


def test_whatever_is_raised_is_a_fault_and_only_ctrl_c_goes_through():
    def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(EnvFault, match=r"SystemExit: 3 \(test_boundary.py:\d+ in leave\)"):
        guarded(leave)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        guarded(interrupt)


def test_a_child_that_an_environment_forks_and_forgets_ends_where_it_returns():
    program = "import os; from ragen.env.boundary import guarded; child = guarded(os.fork); print('back'); os.wait()"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60).stdout == b"back\n"


def test_an_error_whose_text_cannot_be_read_is_still_described():
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert describe(Mute()) == "Mute: (its message cannot be read: __str__ raised RuntimeError)"


def test_a_wrong_option_stays_the_error_of_the_user():
    with pytest.raises(ConfigError, match="size"):
        boundary.make("frozen_lake", {"size": 1})


def test_a_level_is_what_the_first_prompt_needs():
    level = boundary.start(make_env("frozen_lake", {"size": 2}), 5, 0)
    assert sorted(level.actions.values()) == ["Down", "Left", "Right", "Up"]
    assert level.observation.count("\n") == 1 and level.content and "2 rows" in level.notes
