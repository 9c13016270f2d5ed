"""A model that answers on the Play page. It lives in a process of its own: this one never loads torch.

Requests and answers are lines of JSON over pipes; ragen/evaluation/answer.py is the other side.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from ragen.engine.base import Completion, StopReason
from ragen.errors import RagenError
from ragen.llm_agent.agent_proxy import stop_strings
from ragen.llm_agent.prompts import tool_description
from ragen.models.resolve import model_path_of, resolve_model
from ragen.text import printable
from ragen.types import Message
from ragen.view.playing.session import Session

PROGRAM = ("-m", "ragen.evaluation.answer")
ANSWER_S = 300.0
"""Longest time for a reply, loading the model included."""
END_S = 3.0
"""Time that the process has to end by itself."""
HOTTEST = 10.0
"""Largest temperature."""


def playable(name: str) -> str:
    """The model that --play names: a run or checkpoint stands for its newest actor, all else is a model_path."""
    name = model_path_of(name)
    if name != "tiny":  # which one that is, the environment says
        resolve_model(name)
    return name


class Model:
    """The process, and what is asked of it, one reply at a time."""

    def __init__(self, name: str, program: Sequence[str] = PROGRAM) -> None:
        self.name = name
        self.is_ready = self._has_ended = False
        self.errors: deque[str] = deque(maxlen=20)
        """The last lines that the process wrote to stderr."""
        self._turn = threading.Lock()  # whose request is under way
        self._changed = threading.Condition()
        self._answers: dict[int, Mapping[str, Any]] = {}
        self._last_id = 0
        # In a session of its own: Ctrl-C is for the server, which then ends the model.
        self.process = subprocess.Popen(
            [sys.executable, *program, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()
        self._listener.start()

    def describe(self) -> dict[str, Any]:
        """For the page: name, state (loading, ready or ended) and, at the end, why."""
        if not self._has_ended:
            return {"name": self.name, "state": "ready" if self.is_ready else "loading", "reason": ""}
        return {"name": self.name, "state": "ended", "reason": self._ending()}

    def ask(self, request: Mapping[str, Any], *, limit_s: float = ANSWER_S) -> Mapping[str, Any]:
        """The answer to a request; a RagenError where there is none, which says why."""
        with self._turn:
            self._last_id += 1
            number, until = self._last_id, time.monotonic() + limit_s
            self._write(dict(request) | {"id": number})
            with self._changed:
                while number not in self._answers:
                    if self._has_ended:
                        raise RagenError(self._ending())
                    if not self._changed.wait(max(0.0, until - time.monotonic())):
                        raise RagenError(f"The model has not answered within {limit_s:g} s. It is still at work.")
                answer = self._answers.pop(number)
        if "error" in answer:
            raise RagenError(f"The model cannot answer: {answer['error']}")
        return answer

    def close(self) -> None:
        """End the process, by force where it does not end itself."""
        with contextlib.suppress(OSError, ValueError):
            assert self.process.stdin is not None
            self.process.stdin.close()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for reader in (self._reader, self._listener):
            reader.join(END_S)

    def _ending(self) -> str:
        self._listener.join(1.0)
        last = f" It said: {self.errors[-1]}" if self.errors else ""
        status = self.process.returncode
        return f"The process of the model has ended (exit status {status}).{last} Start ragen view again."

    def _write(self, record: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it has ended, which the wait for an answer says
            self.process.stdin.write(json.dumps(record) + "\n")
            self.process.stdin.flush()

    def _read(self) -> None:
        """Collect answers; those that nobody waits for any more are dropped with the next request."""
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self._take(line)
        self.process.wait()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def _take(self, line: str) -> None:
        try:
            record = json.loads(line)
        except ValueError:
            return
        with self._changed:
            self.is_ready = True
            if isinstance(record, dict) and record.get("id") == self._last_id:
                self._answers = {record["id"]: record}
            self._changed.notify_all()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                if line.strip():
                    self.errors.append(printable(line.strip())[:500])


def answer_turn(session: Session, model: Model, temperature: float) -> None:
    """Let the model answer the present turn of a game."""
    if session.is_over:
        raise RagenError("This episode is over. Start the level again.")
    session.answer(completion_of(model.ask(request_of(session, temperature))))


def request_of(session: Session, temperature: float) -> dict[str, Any]:
    """What the model is asked: the present prompt, and the sampling of training but for the temperature."""
    rollout, agent = session.config.actor_rollout_ref.rollout, session.config.agent_proxy
    return {
        "env_type": session.seat.spec.env_type,
        "messages": with_ids(session),
        "enable_think": agent.enable_think,
        "is_growing": agent.context_window_mode != "single_turn",
        "max_tokens": session.proxy.ctx.max_reply(session.seat),
        "max_model_len": rollout.max_model_len,
        "temperature": temperature,
        "top_p": rollout.top_p if temperature else 1.0,
        "top_k": rollout.top_k if temperature else -1,
        "stop_strings": list(stop_strings(tuple(rollout.stop_strings), has_tools=bool(session.seat.tools))),
        "tools": [tool.to_json()["function"] for tool in session.seat.tools],
        "tools_text": tool_description(session.seat.tools, agent) if session.seat.tools else "",
        "seed": secrets.randbits(63),
    }


def with_ids(session: Session) -> list[dict[str, Any]]:
    """The messages of the prompt; replies that a model wrote carry their tokens, so that none is encoded again."""
    messages: list[Message] = session.messages
    num_replies = sum(message["role"] == "assistant" for message in messages)
    turns = iter(session.episode.turns[len(session.episode.turns) - num_replies :])
    return [
        {**message, "ids": next(turns).response_ids} if message["role"] == "assistant" else dict(message)
        for message in messages
    ]


def completion_of(answer: Mapping[str, Any]) -> Completion:
    return Completion(
        session=0,
        text=answer["text"],
        token_ids=answer["ids"],
        logprobs=answer["logprobs"],
        entropies=answer["entropies"],
        stop_reason=StopReason(answer["stop_reason"]),
    )


def temperature_of(value: Any) -> float:
    """0 is greedy."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= HOTTEST:
        raise RagenError(f"temperature={str(value)[:40]!r}: expected a number from 0 (greedy) to {HOTTEST:g}.")
    return float(value)
