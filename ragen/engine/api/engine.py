"""Replies from any server that speaks OpenAI's /chat/completions, for evaluating models one cannot load.

The base URL comes from the argument or OPENAI_BASE_URL, the key from OPENAI_API_KEY alone; the key goes into one
request header and into no message.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import ssl
import threading
import time
import urllib.error
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from queue import SimpleQueue
from typing import Any

from ragen.config.actor_rollout_ref import RolloutConfig
from ragen.engine.api.http import MAX_ANSWER_BYTES, HttpAnswer, TooLong, Transport, post
from ragen.engine.api.key import Secret
from ragen.engine.api.protocol import API, RENAMED, CallFailed, clean, read_reply, refused_parameter, status_failure
from ragen.engine.base import Completion, Engine, ModelSource, Request, StopReason
from ragen.errors import ConfigError, EngineError

OPENAI_URL = "https://api.openai.com/v1"
BASE_URL = re.compile(r"https?://(\[[\da-fA-F:]+\]|[\w.-]+)(:\d+)?(/[^\s?#]*)?")
MAX_WAIT_S = 30.0
"""Longest pause before a retry, whatever Retry-After says."""
MAX_STOP_STRINGS = 4
"""OpenAI refuses more; the rest is cut off here after the fact."""


def build(rollout: RolloutConfig, source: ModelSource) -> Engine:
    options = asdict(rollout.api)
    return ApiEngine(options.pop("model") or str(source.path), **options)


class ApiEngine(Engine):
    """Sends requests to a chat endpoint, `max_concurrency` at a time; replies carry text, not token ids."""

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        *,
        max_concurrency: int = 16,
        timeout_s: float = 60,
        max_retries: int = 5,
        backoff_s: float = 0.5,
        transport: Transport = post,
    ) -> None:
        self.model = model
        key = os.environ.get("OPENAI_API_KEY", "").strip()
        self.secret = Secret(key)
        self.endpoint = chat_endpoint(base_url or os.environ.get("OPENAI_BASE_URL") or (OPENAI_URL if key else ""))
        if not (key.isascii() and key.isprintable()):
            raise ConfigError("OPENAI_API_KEY holds characters that no HTTP header can carry. Copy the key again.")
        self.timeout_s = timeout_s
        self.max_retries = max_retries
        self.backoff_s = backoff_s
        self.transport = transport
        self.refused_parameters: set[str] = set()
        self.last_success = float("-inf")  # time.monotonic()
        self.fatal: EngineError | None = None
        self.num_open = 0
        self.ended: SimpleQueue[Future[Completion]] = SimpleQueue()
        self.is_closing = threading.Event()
        self.pool = ThreadPoolExecutor(max_concurrency, thread_name_prefix="api-engine")

    def submit(self, request: Request) -> None:
        assert request.messages, "an engine that speaks text needs the messages of a request"
        self.num_open += 1
        self.pool.submit(self.reply, request).add_done_callback(self.ended.put)

    def step(self) -> list[Completion]:
        """Wait for at least one reply and return all that have arrived."""
        if self.fatal is not None:
            raise self.fatal
        completions: list[Completion] = []
        # Not `wait` for all that are open: with thousands of them each step would take milliseconds.
        while self.num_open and (not completions or not self.ended.empty()):
            future = self.ended.get()
            self.num_open -= 1
            completions.append(future.result())
        return completions

    def close(self) -> None:
        """Drop what has not been sent and wait for what has (at most `timeout_s`)."""
        self.is_closing.set()
        self.pool.shutdown(wait=True, cancel_futures=True)

    # --- in the threads of the pool

    def reply(self, request: Request) -> Completion:
        """One reply, after as many retries as are worth making."""
        started = time.monotonic()
        for attempt in range(self.max_retries + 1):
            if self.fatal is not None:
                raise self.fatal
            try:
                completion = self.call(request)
            except CallFailed as failure:
                backoff_s = self.backoff_s * 2**attempt * random.uniform(0.5, 1)  # spread, or all come back at once
                pause_s = min(failure.wait_s + backoff_s, MAX_WAIT_S)
                is_last = attempt == self.max_retries or not failure.is_retryable
                if is_last or self.is_closing.wait(pause_s):
                    return self.give_up(request, failure, started=started, num_calls=attempt + 1)
            else:
                self.last_success = time.monotonic()
                return completion
        raise AssertionError("the last attempt returns")

    def give_up(self, request: Request, failure: CallFailed, *, started: float, num_calls: int) -> Completion:
        """An error for this request alone, or for the whole engine if no other request could fare better."""
        calls = f" ({num_calls} calls)" if num_calls > 1 else ""
        message = self.secret.masked(f"{self.endpoint}, model {self.model}: {failure}{calls}")
        if failure.is_fatal or (failure.is_unreachable and self.last_success < started):
            self.fatal = EngineError(message)
            raise self.fatal
        return Completion(session=request.session, text="", stop_reason=StopReason.ERROR, error=message)

    def call(self, request: Request) -> Completion:
        """One exchange with the server, repeated only to leave out parameters it does not know."""
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "ragen"}
        if self.secret.key:
            headers["Authorization"] = f"Bearer {self.secret.key}"
        while True:
            body = self.body(request)
            answer = self.post_once(json.dumps(body).encode(), headers)
            refused = refused_parameter(answer, body)
            if refused is None:
                break
            self.refused_parameters.add(refused)
        if answer.status != 200:
            raise status_failure(answer, self.secret.masked)
        text, stop_reason = read_reply(answer.body, request.params, self.secret.masked)
        return Completion(session=request.session, text=text, stop_reason=stop_reason)

    def body(self, request: Request) -> dict[str, Any]:
        params = request.params
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [dict(message) for message in request.messages],
            "temperature": params.temperature,
            "max_tokens": params.max_tokens,
            "seed": request.seed & 0x7FFFFFFF,  # several servers keep it in 32 bits
        }
        if params.top_p != 1:
            body["top_p"] = params.top_p
        if params.top_k > 0 and not params.is_greedy:
            body["top_k"] = params.top_k  # not OpenAI's own, but vLLM's, SGLang's and llama.cpp's
        if params.stop_strings:
            body["stop"] = list(params.stop_strings[:MAX_STOP_STRINGS])
        for name in self.refused_parameters & body.keys():
            value, new_name = body.pop(name), RENAMED[name]
            if new_name is not None:
                body[new_name] = value
        return body

    def post_once(self, body: bytes, headers: Mapping[str, str]) -> HttpAnswer:
        try:
            return self.transport(self.endpoint, body, headers, self.timeout_s)
        except urllib.error.URLError as error:  # before the request was sent
            is_distrusted = isinstance(error.reason, ssl.SSLCertVerificationError)
            reason = clean(str(error.reason), self.secret.masked, max_length=300)
            why = f"cannot be reached: {reason}. Check the base URL and that the server runs"
            raise CallFailed(why, is_retryable=not is_distrusted, is_unreachable=True) from error
        except TimeoutError as error:
            why = f"gave no answer within {self.timeout_s:g} s. Raise {API}.timeout_s or lower {API}.max_concurrency"
            raise CallFailed(why, is_retryable=True) from error
        except TooLong as error:
            raise CallFailed(f"sent more than {MAX_ANSWER_BYTES // 1_000_000} MB. Is it a chat endpoint?") from error
        except (OSError, http.client.HTTPException) as error:
            why = f"broke off its answer ({type(error).__name__}). Look into the server's log"
            raise CallFailed(why, is_retryable=True) from error


def chat_endpoint(base_url: str) -> str:
    """http://host:8000/v1/ -> http://host:8000/v1/chat/completions"""
    if not base_url:
        raise ConfigError("No API server is given. Set OPENAI_BASE_URL, e.g. http://localhost:8000/v1")
    if "@" in base_url:
        raise ConfigError("The API base URL holds a user name or password. Put the key into OPENAI_API_KEY instead.")
    if not BASE_URL.fullmatch(base_url):
        raise ConfigError(f"The API base URL is {base_url!r}; expected something like http://localhost:8000/v1")
    return base_url.rstrip("/").removesuffix("/chat/completions") + "/chat/completions"
