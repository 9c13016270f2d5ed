"""Environments that fail or lie: their own episode ends with a status, and everything else continues."""

from __future__ import annotations

import json
import sys

import pytest

from ragen.engine.scripted import ScriptedEngine
from ragen.env import REGISTRY
from ragen.errors import ConfigError
from ragen.llm_agent.metrics import rollout_metrics
from ragen.tracking.episodes import read_episodes
from ragen.tracking.rundir import RunDir
from ragen.types import group_episodes
from tests.llm_agent import misbehaving
from tests.llm_agent.counting import answer, make_seats, make_tag, rollout, script, statuses

FAULTS = [*misbehaving.STEPS, *misbehaving.RESETS, *misbehaving.ACTIONS, *misbehaving.NOTES]


UP = script(answer("Up"))


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY, "misbehaving", "tests.llm_agent.misbehaving:MisbehavingEnv")


@pytest.mark.parametrize("step_timeout", [None, 60.0])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_ends_its_own_episode_only(fault, step_timeout, tmp_path):
    seats = make_seats(make_tag("misbehaving", fault=fault, step_timeout=step_timeout), num_groups=3)
    episodes = rollout(ScriptedEngine(UP), seats=seats)  # levels 7, 8 and 9
    again = rollout(ScriptedEngine(UP), seats=seats, base_seed=20)
    seats.close()
    assert statuses(episodes) == ["solved", "env_error", "solved"]
    assert statuses(again) == ["solved"] * 3
    error = episodes[1].error
    assert 0 < len(error) <= 2100 and error.isprintable()
    assert rollout_metrics(episodes)["faults/env_errors"] == 1
    assert [group.is_complete for group in group_episodes(episodes)] == [True, False, True]
    RunDir(tmp_path).write_episodes("all", episodes)
    [path] = (tmp_path / "episodes").iterdir()
    assert [episode.error for episode in read_episodes(path)] == ["", error, ""]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("raises", "ValueError: no way (misbehaving.py:"),
        ("raises what cannot be printed", "Unspeakable: (its message cannot be read: __str__ raised RuntimeError)"),
        ("raises an exit", "SystemExit: 0 (misbehaving.py:"),
        ("raises with escapes", r"ValueError: \x1b[2J\x1b]0;owned\x07 (misbehaving.py:"),
        ("is_done is an array", "step returned is_done array([ True, False]): expected True or False."),
        ("no is_done", "which has no is_done; expected a StepResult."),
        ("reward is huge", "step returned a reward 1e+308: expected a number between"),
        ("info is not sure of success", "expected a finite number for 'success', got nan."),
        ("notes are None", "notes returned None: expected a text."),
        ("actions are twins", "expected names that differ by more than capital letters."),
    ],
)
def test_the_error_says_what_was_wrong_and_where(fault, error):
    seats = make_seats(make_tag("misbehaving", fault=fault, failing_seed=7))
    [episode] = rollout(ScriptedEngine(UP), seats=seats)
    seats.close()
    assert error in episode.error


def test_a_long_error_keeps_its_head_and_its_tail_and_says_what_is_missing():
    seats = make_seats(make_tag("misbehaving", fault="raises a text of 20 MB", failing_seed=7))
    [episode] = rollout(ScriptedEngine(UP), seats=seats)
    seats.close()
    assert episode.error.startswith("ValueError: xxx")
    assert "characters left out] ...xxx" in episode.error
    assert "(misbehaving.py:" in episode.error


def test_a_fault_is_logged_once_with_the_call_that_raised(caplog):
    seats = make_seats(make_tag("misbehaving", fault="raises", failing_seed=7), group_size=5)
    rollout(ScriptedEngine(UP), seats=seats)
    seats.close()
    [record] = caplog.records
    assert "tag0: an environment failed (level 7, member 0): ValueError: no way" in record.message
    assert "raise error" in record.message


def test_rewards_that_grow_beyond_all_bounds_end_the_episode(monkeypatch):
    monkeypatch.setitem(misbehaving.STEPS, "grows", misbehaving.result(reward=9e14, is_done=False))
    seats = make_seats(make_tag("misbehaving", fault="grows", failing_seed=7))
    [episode] = rollout(ScriptedEngine(UP), seats=seats)
    seats.close()
    assert statuses([episode]) == ["env_error"]
    assert "the rewards of the episode sum to 1.8e+15" in episode.error
    assert episode.reward == 9e14


def test_numbers_may_come_from_numpy(monkeypatch):
    numpy = misbehaving.np
    info = {"success": numpy.bool_(True), "steps": numpy.int64(3), "distance": numpy.array(0.5)}
    step = misbehaving.result(reward=numpy.float32(0.5), is_done=numpy.array(True), info=info)
    monkeypatch.setitem(misbehaving.STEPS, "numpy", step)
    seats = make_seats(make_tag("misbehaving", fault="numpy", failing_seed=7))
    [episode] = rollout(ScriptedEngine(UP), seats=seats)
    seats.close()
    assert statuses([episode]) == ["solved"]
    assert episode.turns[0].info == {"success": 1.0, "steps": 3.0, "distance": 0.5, "manager_invalid_action": 0.0}
    json.dumps(episode.turns[0].info)


@pytest.mark.parametrize("step_timeout", [None, 60.0])
@pytest.mark.parametrize("fault", ["close raises", "close exits"])
def test_an_environment_that_cannot_be_closed_is_named_once_and_fails_nothing(fault, step_timeout, caplog):
    seats = make_seats(make_tag("misbehaving", fault=fault, step_timeout=step_timeout), num_groups=3)
    assert statuses(rollout(ScriptedEngine(UP), seats=seats)) == ["solved"] * 3
    seats.close()
    [record] = caplog.records
    assert "closing an environment failed" in record.message
    seats.close()


class Picky(misbehaving.MisbehavingEnv):
    """Every second one, or none, can be made."""

    num_made = 0

    def __init__(self, config: misbehaving.MisbehavingConfig) -> None:
        super().__init__(config)
        type(self).num_made += 1
        if config.fault == "never" or Picky.num_made % 2:
            sys.exit(0)


def test_an_environment_that_cannot_be_made_is_tried_again_with_each_episode(monkeypatch, caplog):
    monkeypatch.setitem(REGISTRY, "picky", f"{__name__}:Picky")
    monkeypatch.setattr(Picky, "num_made", 0)
    seats = make_seats(make_tag("picky"), num_groups=3)  # the second can be made
    first = rollout(ScriptedEngine(UP), seats=seats)  # of the others the second try works for the first
    assert statuses(first) == ["solved", "solved", "env_error"]
    assert statuses(rollout(ScriptedEngine(UP), seats=seats)) == ["solved"] * 3
    seats.close()
    assert "2 of 3 environments cannot be made: SystemExit: 0" in caplog.text


def test_when_no_environment_can_be_made_the_start_says_why(monkeypatch):
    monkeypatch.setitem(REGISTRY, "picky", f"{__name__}:Picky")
    with pytest.raises(ConfigError, match=r"custom_envs.tag0: no environment of type 'picky'.*SystemExit: 0"):
        make_seats(make_tag("picky", fault="never"))


def test_a_module_that_cannot_be_imported_is_no_traceback(monkeypatch):
    monkeypatch.setitem(REGISTRY, "missing", "no_such_module:Env")
    with pytest.raises(ConfigError, match="ModuleNotFoundError: No module named 'no_such_module'"):
        make_seats(make_tag("missing"))
