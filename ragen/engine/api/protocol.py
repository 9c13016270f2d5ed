"""One exchange with a /chat/completions server: sending, and making sense of what comes back.

Tested in tests/engine/test_api_engine.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from ragen.engine.api.http import HttpAnswer
from ragen.engine.base import SamplingParams, StopReason
from ragen.text import printable

MAX_COMPLAINT = 4_000
"""Characters of a server's text that are looked at; fewer are shown, once keys are masked."""
Mask = Callable[[str], str]
"""Keeps the key out of a text."""

RETRYABLE_STATUSES = {408, 409, 429}  # and every 5xx
FATAL_STATUSES = {301, 302, 303, 307, 308, 401, 402, 403, 404, 405}
"""These answers would meet every request alike, so the engine stops at the first."""

API, REPLY_LENGTH = "actor_rollout_ref.rollout.api", "actor_rollout_ref.rollout.response_length"
REMEDIES = {
    301: "Set the base URL to where it redirects",
    400: "Shorten the context or change the sampling parameters",
    401: "Set OPENAI_API_KEY to a key of this server",
    402: "The account has no credit left",
    403: "This key may not use this model",
    404: "Check the model name and the base URL, which usually ends in /v1",
    405: "Check the base URL, which usually ends in /v1",
    408: f"Raise {API}.timeout_s or lower {REPLY_LENGTH}",
    413: "Shorten the context",
    429: f"Lower {API}.max_concurrency, or wait for the quota to refill",
} | dict.fromkeys((302, 303, 307, 308), "Set the base URL to where it redirects")

RENAMED = {"max_tokens": "max_completion_tokens", "seed": None, "stop": None}
"""Parameters some servers do not take, and what is sent instead; None leaves the parameter out.

Without a seed a reply cannot be repeated; without stop strings a reply is cut here, after the fact."""
REFUSED_PARAMETER = re.compile(r"unsupported|not support|unknown|unrecognized|not permitted|not allowed|extra", re.I)


@dataclass(eq=False)
class CallFailed(Exception):
    """One call did not bring a reply."""

    why: str
    _: KW_ONLY
    is_retryable: bool = False
    is_fatal: bool = False
    """It would meet every request alike."""
    is_unreachable: bool = False
    """No server was reached."""
    wait_s: float = 0.0
    """The pause the server asked for."""

    def __str__(self) -> str:
        return self.why


def refused_parameter(answer: HttpAnswer, body: Mapping[str, Any]) -> str | None:
    """The parameter a 400 complains about, if the request can do without it."""
    if answer.status not in {400, 422}:
        return None
    complaint = answer.body.decode(errors="replace")
    if not REFUSED_PARAMETER.search(complaint):
        return None
    return next((name for name in RENAMED if name in body and re.search(rf"\b{name}\b", complaint)), None)


def status_failure(answer: HttpAnswer, mask: Mask) -> CallFailed:
    status, detail = answer.status, complaint_of(answer.body, mask)
    remedy = REMEDIES.get(status, "The server failed; try again later" if status >= 500 else "Look at the server's log")
    if location := answer.headers.get("Location"):
        detail = f"redirect to {clean(location, mask, max_length=300)}"
    is_out_of_credit = status == 429 and b"insufficient_quota" in answer.body
    return CallFailed(
        f"answered {status}{f' ({detail})' if detail else ''}. {REMEDIES[402] if is_out_of_credit else remedy}",
        is_retryable=(status in RETRYABLE_STATUSES or status >= 500) and not is_out_of_credit,
        is_fatal=status in FATAL_STATUSES or is_out_of_credit,
        wait_s=retry_after_s(answer.headers.get("Retry-After", "")),
    )


def complaint_of(body: bytes, mask: Mask, *, max_length: int = 300) -> str:
    """The server's own words: error.message where it keeps to the protocol, else the start of the page."""
    text = body.decode(errors="replace")
    with suppress(ValueError, RecursionError):
        complaint = json.loads(text)
        for name in ("error", "message", "detail"):
            if isinstance(complaint, dict) and name in complaint:
                complaint = complaint[name]
        text = complaint if isinstance(complaint, str) else text
    return clean(text, mask, max_length=max_length)


def clean(text: str, mask: Mask, *, max_length: int) -> str:
    """A server's text as messages show it: one line, printable, and cut only after the key is out of it."""
    text = mask(printable(" ".join(text[:MAX_COMPLAINT].split())))
    return text if len(text) <= max_length else text[:max_length] + "..."


def retry_after_s(header: str) -> float:
    """Retry-After in seconds: '7' -> 7.0; a date -> the time until then; anything else -> 0."""
    if re.fullmatch(r"\d{1,9}(\.\d*)?", header.strip()):
        return float(header)
    try:
        return max(0.0, (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return 0.0


def read_reply(body: bytes, params: SamplingParams, mask: Mask) -> tuple[str, StopReason]:
    """The text of a chat completion and why it ended."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise CallFailed(
            f"sent something that is not JSON ({complaint_of(body, mask, max_length=80)!r}). Check the base URL"
        ) from error
    choices = content.get("choices") if isinstance(content, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise CallFailed(f"sent no choices ({complaint_of(body, mask, max_length=80)!r}). Is it a chat endpoint?")
    choice = choices[0]
    message = choice.get("message")
    text = message.get("content") if isinstance(message, dict) else None
    finish_reason = choice.get("finish_reason")
    if not isinstance(text, str):
        remedy = f"Raise {REPLY_LENGTH}" if finish_reason == "length" else "Ask a model that answers in plain text"
        reason = clean(repr(finish_reason), mask, max_length=80)
        raise CallFailed(f"sent a reply without text (finish_reason {reason}). {remedy}")
    if finish_reason == "content_filter":
        raise CallFailed("withheld the reply by its content filter. Ask another model")
    text = text.encode(errors="replace").decode()  # half a surrogate pair is JSON, yet cannot be written to a file
    return end_reply(text, params.stop_strings, is_cut=finish_reason == "length", matched=matched_stop(choice))


def matched_stop(choice: Mapping[str, Any]) -> str | None:
    """The stop string that ended a reply, "" for none, as vLLM and SGLang say in an extra field; None: not said."""
    for name in ("stop_reason", "matched_stop"):
        if name in choice:
            return choice[name] if isinstance(choice[name], str) else ""
    return None


def end_reply(text: str, stop_strings: tuple[str, ...], *, is_cut: bool, matched: str | None) -> tuple[str, StopReason]:
    """End a reply with its stop string, as the engines that sample tokens do.

    Servers remove the stop string; it is put back when the server names it, or when it closes a tag left open:
    "<answer>Up", stop "</answer>" -> "<answer>Up</answer>".
    """
    ends = [text.index(stop) + len(stop) for stop in stop_strings if stop in text]
    if ends:
        return text[: min(ends)], StopReason.STOP_STRING
    if is_cut:
        return text, StopReason.LENGTH
    for stop in stop_strings:
        tag = re.fullmatch(r"</(\w+)>", stop)
        if stop == matched or (matched is None and tag and f"<{tag[1]}>" in text):
            return text + stop, StopReason.STOP_STRING
    return text, StopReason.STOP_TOKEN
