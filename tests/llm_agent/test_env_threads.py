"""Calls into environments on threads of their own: side by side, and given up when they hang."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest

from ragen.engine.scripted import ScriptedEngine
from ragen.env import REGISTRY, StepResult
from ragen.errors import RagenError
from ragen.llm_agent import env_threads, es_manager
from ragen.llm_agent.es_manager import EsManager, levels_from
from ragen.llm_agent.metrics import rollout_metrics
from ragen.types import Episode, Status, Turn, group_episodes
from tests.llm_agent import misbehaving
from tests.llm_agent.counting import (
    CountingConfig,
    CountingEnv,
    answer,
    make_seats,
    make_tag,
    rollout,
    script,
    statuses,
)

PATIENCE_S = 20


"""A wait this long means a deadlock; it is never reached when the code is right."""


class WaitingEnv(CountingEnv):
    """Calls `hook` in every step before it counts."""

    def __init__(self, hook: Callable[[], None], goal: int = 1) -> None:
        super().__init__(CountingConfig(goal=goal))
        self.hook = hook

    def step(self, action: int) -> StepResult:
        self.hook()
        return super().step(action)


def nothing() -> None:
    return None


def wait_for(event: threading.Event) -> Callable[[], None]:
    def hook() -> None:
        assert event.wait(PATIENCE_S), "the other episode did not continue"

    return hook


@pytest.fixture
def seats() -> EsManager:
    return make_seats(make_tag(max_workers=2, max_actions=9), group_size=2)


@pytest.mark.parametrize("per_step", [1, None])
def test_a_slow_environment_does_not_hold_up_a_fast_one(seats, per_step):
    fast_is_over = threading.Event()
    seats.seats[0].env = WaitingEnv(wait_for(fast_is_over))
    seats.seats[1].env = WaitingEnv(nothing, goal=5)
    order: list[int] = []

    def on_episode(episode: Episode) -> None:
        order.append(episode.member)
        if episode.member == 1:
            fast_is_over.set()

    engine = ScriptedEngine(script(answer("Up")), per_step=per_step)
    episodes = rollout(engine, seats=seats, on_episode=on_episode)
    seats.close()
    assert statuses(episodes) == ["solved", "solved"]
    assert order == [1, 0]
    assert [len(episode.turns) for episode in episodes] == [1, 5]


def test_two_environments_of_a_tag_are_stepped_at_the_same_time(seats):
    both = threading.Barrier(2, timeout=PATIENCE_S)
    for seat in seats.seats:
        seat.env = WaitingEnv(lambda: both.wait() and None)
    episodes = rollout(ScriptedEngine(script(answer("Up"))), seats=seats)
    seats.close()
    assert statuses(episodes) == ["solved", "solved"]


def test_two_levels_of_a_tag_are_made_at_the_same_time(seats):
    both = threading.Barrier(2, timeout=PATIENCE_S)

    class SlowToReset(CountingEnv):
        def reset(self, seed: int, member: int = 0) -> str:
            both.wait()
            return super().reset(seed, member)

    for seat in seats.seats:
        seat.env = SlowToReset(CountingConfig())
    assert [seat.error for seat in seats.reset(levels_from(7, seats.num_groups))] == ["", ""]
    assert [seat.observation for seat in seats.seats] == ["level 7: count 0"] * 2
    seats.close()


def test_a_serial_tag_goes_on_while_another_tag_thinks_in_its_threads():
    serial_is_over = threading.Event()
    seats = make_seats(make_tag(max_workers=2), make_tag(goal=4))
    seats.seats[0].env = WaitingEnv(wait_for(serial_is_over))

    def on_episode(episode: Episode) -> None:
        if episode.tag == "tag1":
            serial_is_over.set()

    episodes = rollout(ScriptedEngine(script(answer("Up"))), seats=seats, on_episode=on_episode)
    seats.close()
    assert statuses(episodes) == ["solved", "solved"]


class NamingEnv(CountingEnv):
    """Remembers which threads make, reset, step and close it."""

    names: ClassVar[set[str]] = set()

    def __init__(self, config: CountingConfig) -> None:
        super().__init__(config)
        self.names.add(threading.current_thread().name)

    def reset(self, seed: int, member: int = 0) -> str:
        self.names.add(threading.current_thread().name)
        return super().reset(seed, member)

    def step(self, action: int) -> StepResult:
        self.names.add(threading.current_thread().name)
        return super().step(action)

    def close(self) -> None:
        self.names.add(threading.current_thread().name)


@pytest.mark.parametrize("step_timeout", [None, 60.0])
def test_a_tag_is_called_by_one_thread_its_own_where_time_is_limited(step_timeout, monkeypatch):
    monkeypatch.setitem(REGISTRY, "naming", f"{__name__}:NamingEnv")
    NamingEnv.names.clear()
    seats = make_seats(make_tag("naming", step_timeout=step_timeout), num_groups=3)
    rollout(ScriptedEngine(script(answer("Up || Up"), answer("Up"))), seats=seats)
    seats.close()
    assert NamingEnv.names == {threading.current_thread().name if step_timeout is None else "env-tag0-0"}


ROOT = Path(__file__).parents[2]


UP = script(answer("Up"))


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY, "misbehaving", "tests.llm_agent.misbehaving:MisbehavingEnv")


@pytest.mark.parametrize("max_workers", [1, 2])
@pytest.mark.parametrize("fault", [*misbehaving.HANGS, *misbehaving.RESET_HANGS])
def test_a_hung_environment_ends_its_own_episode_with_a_status_of_its_own(fault, max_workers, caplog):
    tag = make_tag("misbehaving", fault=fault, step_timeout=0.3, max_workers=max_workers)
    seats = make_seats(tag, num_groups=3)
    hung = seats.seats[1].env
    episodes = rollout(ScriptedEngine(UP), seats=seats)
    again = rollout(ScriptedEngine(UP), seats=seats, base_seed=20)
    assert statuses(episodes) == ["solved", "env_timeout", "solved"]
    assert statuses(again) == ["solved"] * 3
    assert seats.seats[1].env is not hung
    seats.close()
    call = "reset" if fault.startswith("reset") else "step(Up)"
    assert episodes[1].error == f"{call} did not return within 0.3 s (custom_envs.tag0.step_timeout)"
    assert [group.is_complete for group in group_episodes(episodes)] == [True, False, True]
    metrics = rollout_metrics(episodes)
    assert (metrics["faults/env_timeouts"], metrics["faults/env_errors"], metrics["tag0/success"]) == (1, 0, 1)
    assert "the next episode gets a new environment" in caplog.text


def test_actions_before_the_one_that_hangs_are_kept(monkeypatch):
    calls = iter([misbehaving.result(is_done=False), misbehaving.HANGS["step sleeps"]])
    monkeypatch.setitem(misbehaving.STEPS, "second", lambda *_: next(calls)())
    seats = make_seats(make_tag("misbehaving", fault="second", failing_seed=7, step_timeout=0.3))
    [episode] = rollout(ScriptedEngine(script(answer("Up || Down"))), seats=seats)
    seats.close()
    assert (episode.turns[0].executed, episode.reward) == (["Up"], 1.0)
    assert episode.error.startswith("step(Down) did not return")


def test_the_limit_is_for_each_action_and_not_for_the_turn(monkeypatch):
    """Thirty waits of a tenth of the limit in one turn."""
    pause = threading.Event()

    def slow(*_):
        pause.wait(0.1)
        return misbehaving.result(is_done=False)()

    monkeypatch.setitem(misbehaving.STEPS, "slow", slow)
    seats = make_seats(make_tag("misbehaving", fault="slow", failing_seed=7, step_timeout=1.0, max_actions=15))
    seats.reset(levels_from(7, seats.num_groups))
    turn = Turn(user="", prompt_ids=[], response_ids=[], logprobs=[], text="", stop_reason="", actions=["Up"] * 15)
    pending = es_manager.PendingTurn(seats.seats[0], turn)
    seats.play([pending])
    assert pending.finish() is Status.OUT_OF_ACTIONS
    seats.close()
    assert (seats.seats[0].error, len(turn.executed)) == ("", 15)


def test_environments_that_hang_again_and_again_end_the_run_with_the_reason(monkeypatch):
    monkeypatch.setattr(env_threads, "MAX_HUNG", 2)
    tag = make_tag("misbehaving", fault="step sleeps", failing_seed=7, step_timeout=0.05)
    seats = make_seats(tag, group_size=5)
    with pytest.raises(RagenError, match="2 earlier calls into environments are still hanging"):
        rollout(ScriptedEngine(UP), seats=seats)
    seats.close()


def test_a_loop_that_hangs_in_python_is_ended():
    seats = make_seats(make_tag("misbehaving", fault="step spins", failing_seed=7, step_timeout=0.2))
    threads = seats.seats[0].calls.threads
    assert threads is not None
    [spinning] = threads._threads
    rollout(ScriptedEngine(UP), seats=seats)
    spinning.join(PATIENCE_S)
    assert not spinning.is_alive()
    assert threads._threads != [spinning]
    seats.close()


def test_a_process_that_was_stopped_for_longer_than_the_limit_gives_up_on_nobody(monkeypatch):
    monkeypatch.setattr(env_threads, "LATE_S", -1.0)  # as if every wake-up came late
    release = threading.Event()

    def slow(*_):
        release.wait(1.0)
        return misbehaving.result()()

    monkeypatch.setitem(misbehaving.STEPS, "slow", slow)
    seats = make_seats(make_tag("misbehaving", fault="slow", failing_seed=7, step_timeout=0.3))
    assert statuses(rollout(ScriptedEngine(UP), seats=seats)) == ["solved"]
    seats.close()


def test_managers_that_nobody_closes_leave_no_threads_behind():
    before = set(threading.enumerate())
    seats = make_seats(make_tag("misbehaving", max_workers=3))
    rollout(ScriptedEngine(UP), seats=seats)
    mine = set(threading.enumerate()) - before
    assert len(mine) == 4  # and the watchdog
    del seats
    gc.collect()
    for thread in mine:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


INTERRUPTED = """
    import os, signal, sys, threading
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background begins with it ignored
    from ragen.engine.scripted import ScriptedEngine
    from ragen.env import REGISTRY
    from ragen.errors import reporting_errors
    from tests.llm_agent.counting import answer, make_seats, make_tag, rollout, script
    from tests.llm_agent import misbehaving

    def hang(*_):
        os.write(1, b"hanging\\n")  # one call: the lines of two threads do not mix
        threading.Event().wait()

    misbehaving.STEPS["hangs"] = hang
    REGISTRY["misbehaving"] = "tests.llm_agent.misbehaving:MisbehavingEnv"
    seats = make_seats(make_tag("misbehaving", fault="hangs", failing_seed=7, max_workers={max_workers}), group_size=2)

    def main():
        try:
            rollout(ScriptedEngine(script(answer("Up"))), seats=seats)
        finally:
            seats.close()
    sys.exit(reporting_errors(main))
"""


@pytest.mark.parametrize("max_workers", [1, 2])
def test_one_interrupt_ends_a_run_whose_environment_hangs(max_workers):
    code = textwrap.dedent(INTERRUPTED.format(max_workers=max_workers))
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "hanging\n"
        os.kill(child.pid, signal.SIGINT)
        _, errors = child.communicate(timeout=60)
    assert (child.returncode, errors) == (130, "Interrupted.\n")
