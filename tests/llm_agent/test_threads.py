"""Environments that are stepped in threads: no waiting for each other, and the same results."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ClassVar

import pytest

from ragen.engine.scripted import ScriptedEngine
from ragen.env import REGISTRY, StepResult
from ragen.llm_agent.es_manager import EsManager
from ragen.types import Episode
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
        assert event.wait(PATIENCE_S), "the other episode did not go on"

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
    assert [seat.error for seat in seats.reset(7)] == ["", ""]
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
