"""Calls into the environments of one tag: on which thread, within which time, and what is said about their faults."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TypeVar

from ragen.config.schema import EnvTag
from ragen.env import TextEnv, boundary
from ragen.env.boundary import EnvFault
from ragen.env.registry import naming_tag
from ragen.errors import ConfigError
from ragen.llm_agent.env_threads import CallThreads, Clock, EnvTimeout, Work, wait_for

T = TypeVar("T")

logger = logging.getLogger(__name__)

Fault = EnvFault | ConfigError
"""Why an episode ends before its time; a wrong option can show as late as when an environment is made again."""
FAULTS = (EnvFault, ConfigError)

CLOSE_S = 10.0
"""Longest time for closing all environments of a tag."""


def result_of(future: Future[T]) -> T | Fault:
    """What the calls returned, or the fault that ended them."""
    try:
        return wait_for(future)
    except FAULTS as fault:
        return fault


class TagCalls:
    """How the environments of one tag are called, and what has been said about their faults.

    Without a time limit and threads of its own a tag is called by the thread that plays.
    """

    def __init__(self, tag: str, spec: EnvTag) -> None:
        self.tag, self.spec = tag, spec
        self.is_parallel = spec.parallel_friendly and spec.max_workers > 1
        has_threads = self.is_parallel or spec.step_timeout is not None
        size = spec.max_workers if self.is_parallel else 1
        self.threads = CallThreads(tag, size=size, limit_s=spec.step_timeout) if has_threads else None
        self._said: set[str] = set()

    def submit(self, work: Work[T]) -> Future[T]:
        if self.threads is not None:
            return self.threads.submit(work)
        future: Future[T] = Future()
        future.set_result(work(Clock()))
        return future

    def run(self, works: Sequence[Work[T]]) -> list[T | Fault]:
        """Do works one after the other, in the order given; a thread costs one hand-over for all of them."""
        outcomes: list[T | Fault] = []
        while len(outcomes) < len(works):
            done: list[T | Fault] = []
            todo = works[len(outcomes) :]

            def batch(clock: Clock, todo: Sequence[Work[T]] = todo, done: list[T | Fault] = done) -> None:
                for work in todo:
                    try:
                        outcome = work(clock)
                    except FAULTS as fault:
                        outcome = fault
                    if clock.is_given_up:
                        return
                    done.append(outcome)

            try:
                wait_for(self.submit(batch))
                outcomes += done
            except EnvTimeout as fault:  # the works behind it continue with another thread
                outcomes += [*done, fault]
        return outcomes

    def describe(self, fault: Fault) -> str:
        """What an episode records of a fault, with the way out where there is one."""
        text = str(fault)
        if isinstance(fault, EnvTimeout):
            return f"{text} (custom_envs.{self.tag}.step_timeout)"
        if "signal only works in main thread" in text:
            return f"{text}. Set custom_envs.{self.tag}.step_timeout: null, then the main thread calls this environment"
        return text

    def report(self, kind: str, text: str, trace: str = "") -> None:
        """Log the first fault of each kind; the others are counted."""
        if kind not in self._said:
            self._said.add(kind)
            logger.warning("%s: %s%s", self.tag, text, f"\n{trace}" if trace else "")

    def has_reported(self, kind: str) -> bool:
        return kind in self._said

    def close(self, envs: list[TextEnv]) -> None:
        """Close environments; one that fails to or takes too long is named once and does not fail the run."""

        def work(clock: Clock) -> list[EnvFault]:
            faults = []
            for env in envs:
                try:
                    boundary.guarded(env.close)
                except EnvFault as fault:
                    faults.append(fault)
            return faults

        if self.threads is None or not self.threads.is_busy:  # else it is Ctrl-C while an environment hangs
            try:
                for fault in self.submit(work).result(timeout=CLOSE_S):
                    self.report("close", f"closing an environment failed: {fault}", fault.trace)
            except TimeoutError:
                slow = f"closing the environments takes more than {CLOSE_S:g} s. They are left as they are."
                self.report("close", slow)
        if self.threads is not None:
            self.threads.close()


def make_envs(calls: TagCalls, count: int) -> list[TextEnv | None]:
    """New environments of a tag; those that cannot be made are None, and tried again with each episode."""
    faults: list[EnvFault] = []

    def work(clock: Clock) -> list[TextEnv | None]:
        clock.start("making the environments", is_limited=False)  # the first may load its data
        envs: list[TextEnv | None] = []
        for _ in range(count):
            try:
                envs.append(boundary.make(calls.spec.env_type, calls.spec.env_config))
            except EnvFault as fault:
                faults.append(fault)
                envs.append(None)
        return envs

    with naming_tag(calls.tag, calls.spec.env_type):
        envs = wait_for(calls.submit(work))
    if count and len(faults) == count:
        raise ConfigError(
            f"custom_envs.{calls.tag}: no environment of type {calls.spec.env_type!r} can be made: "
            f"{calls.describe(faults[0])}. Repair it, or check env_config.\n{faults[0].trace}".rstrip()
        )
    if calls.spec.max_tokens is None and any(env and env.max_tokens is None for env in envs):
        raise ConfigError(
            f"custom_envs.{calls.tag}.max_tokens is null, and {calls.spec.env_type!r} has no length of a reply of its "
            "own. Set a number of tokens."
        )
    if faults:
        calls.report("made", f"{len(faults)} of {count} environments cannot be made: {faults[0]}", faults[0].trace)
    return envs
