"""One POST over HTTP with the standard library, within one time limit for everything.

Tested in tests/engine/test_api_engine.py.
"""

from __future__ import annotations

import http.client
import io
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

MAX_ANSWER_BYTES = 10_000_000


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What came back over HTTP, whatever its status."""

    status: int
    headers: Mapping[str, str]
    body: bytes


Transport = Callable[[str, bytes, Mapping[str, str], float], HttpAnswer]
"""(url, body, headers, timeout in seconds) -> answer; failures are OSErrors, HTTPExceptions or TooLong."""


class TooLong(Exception):
    """The answer has more than MAX_ANSWER_BYTES."""


class _Deadline(io.RawIOBase):
    """What a socket receives until a point in time.

    A socket's own time-out begins anew with every byte, so a server that trickles its headers would never meet it.
    """

    def __init__(self, raw: Any, sock: Any, deadline: float) -> None:
        self.raw, self.sock, self.deadline = raw, sock, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left_s = self.deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self.sock.settimeout(left_s)
        return self.raw.readinto(buffer)

    def close(self) -> None:
        self.raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: Any, *args: Any, deadline: float, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        raw = self.fp.detach()  # type: ignore[union-attr]
        self.fp = io.BufferedReader(_Deadline(raw, sock, deadline))


def _with_deadline(connection: type[http.client.HTTPConnection], deadline: float, *args: Any, **kwargs: Any) -> Any:
    made = connection(*args, **kwargs)
    made.response_class = partial(_Response, deadline=deadline)  # type: ignore[assignment]
    return made


class _UntilDeadline(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Opens connections of both kinds whose answers must have come by then."""

    def __init__(self, deadline: float) -> None:
        super().__init__()
        self.deadline = deadline

    def do_open(self, connection: Any, request: urllib.request.Request, **options: Any) -> Any:
        return super().do_open(partial(_with_deadline, connection, self.deadline), request, **options)  # type: ignore[arg-type]


class _AnyStatus(urllib.request.HTTPErrorProcessor):
    """Hands every status back as an answer; a redirect is not followed, or the key would follow it elsewhere."""

    def http_response(self, request, response):
        return response

    https_response = http_response


def post(url: str, body: bytes, headers: Mapping[str, str], timeout_s: float) -> HttpAnswer:
    """The transport of the standard library; honours the usual proxy variables."""
    deadline = time.monotonic() + timeout_s
    request = urllib.request.Request(url, data=body, headers=dict(headers), method="POST")
    opener = urllib.request.build_opener(_AnyStatus, _UntilDeadline(deadline))
    with opener.open(request, timeout=timeout_s) as response:
        parts, size = [], 0
        while part := response.read1(65536):
            parts.append(part)
            size += len(part)
            if size > MAX_ANSWER_BYTES:
                raise TooLong
        if response.length:  # what Content-Length promised and did not come
            raise http.client.IncompleteRead(b"", response.length)
        return HttpAnswer(response.status, response.headers, b"".join(parts))
