"""Who is answered: pure ASGI middleware around the routes.

Any page that somebody has open may send requests to this machine. Such a request names its own site as origin, or its
own name as host (DNS rebinding); both are refused. On another address than loopback everybody in the network may, so a
token is needed: the address that is printed carries it once, a cookie from then on. And a policy tells the browser to
run nothing but the files of the page: texts of models stay texts.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
COOKIE = "ragen_view"
TOKEN = "token"
METHODS = ("GET", "HEAD")
PLAY = "/api/play/"
"""Below it, and nowhere else, POST is answered: what a player says is kept in memory and changes no file."""
TRUSTED_POLICY = "ragen"
"""The one name under which the page may make addresses of scripts (its worker's)."""


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def content_security_policy(script_hashes: Iterable[str] = ()) -> str:
    """Scripts and styles come from the page's own files alone; `script_hashes` allow its import map."""
    scripts = " ".join(["'self'", *(f"'{each}'" for each in script_hashes)])
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {scripts}",
            "style-src 'self'",
            "img-src 'self' data:",
            "connect-src 'self'",
            "worker-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            f"trusted-types {TRUSTED_POLICY}",
        )
    )


class Refused(Exception):
    """A request that is not answered; the text says why."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Guard:
    """Lets requests of the page itself through and adds the headers that keep it safe."""

    def __init__(self, app: App, *, hosts: Iterable[str] = (), token: str | None = None, policy: str = "") -> None:
        self.app = app
        self.hosts = LOOPBACK | {host.lower() for host in hosts}
        self.token = token
        self.headers: Headers = [
            (name.encode(), value.encode())
            for name, value in {
                "content-security-policy": policy or content_security_policy(),
                "x-content-type-options": "nosniff",
                "x-frame-options": "DENY",
                "referrer-policy": "no-referrer",
                "cross-origin-opener-policy": "same-origin",
                "cross-origin-resource-policy": "same-origin",
            }.items()
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *self.headers]
            await send(message)

        try:
            self.check(scope)
            location = self.check_token(scope)
        except Refused as error:
            await _answer(send_safely, error.status, str(error).encode())
        else:
            if location is None:
                await self.app(scope, receive, send_safely)
            else:
                cookie = f"{COOKIE}={self.token}; Path=/; HttpOnly; SameSite=Lax"
                welcome = [(b"location", location.encode("latin-1")), (b"set-cookie", cookie.encode())]
                await _answer(send_safely, 303, b"", welcome)

    def check(self, scope: Scope) -> None:
        """Method, host and origin."""
        is_post = scope["method"] == "POST" and scope["path"].startswith(PLAY)
        if scope["method"] not in METHODS and not is_post:
            raise Refused(405, "Only GET is answered: nothing can be changed from here.")
        host = _one(scope, b"host")
        if not self._is_known(_hostname(host)):
            raise Refused(403, "This server is not known by that name. Open the address that ragen view has printed.")
        origin = _one(scope, b"origin")
        if origin and origin.lower() != f"{scope.get('scheme', 'http')}://{host}".lower():
            raise Refused(403, "Another site may not read from here.")
        site = _one(scope, b"sec-fetch-site")
        is_link = _one(scope, b"sec-fetch-mode") == "navigate" and _one(scope, b"sec-fetch-dest") == "document"
        if site in ("cross-site", "same-site") and not is_link:
            raise Refused(403, "Another site may not read from here.")
        if is_post:
            self._check_post(scope, origin, site)

    def _check_post(self, scope: Scope, origin: str, site: str) -> None:
        """Browsers name the origin of every POST, and ask first before another site may send JSON."""
        if not origin or site not in ("", "same-origin"):
            raise Refused(403, "Only the page itself may play from here.")
        if _one(scope, b"content-type").partition(";")[0].strip().lower() != "application/json":
            raise Refused(415, "Expected JSON (content-type: application/json).")

    def _is_known(self, name: str) -> bool:
        """Rebinding needs a name that somebody owns; where there is a token, numbers are fine as well."""
        if name in self.hosts:
            return True
        if self.token is None:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def check_token(self, scope: Scope) -> str | None:
        """None to go on, or where to send whoever came with the token in the address."""
        if self.token is None:
            return None
        query = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        for name, value in query:
            if name == TOKEN and self._is_token(value):
                rest = urlencode([pair for pair in query if pair[0] != TOKEN])
                path = "/" + scope.get("raw_path", b"/").partition(b"?")[0].decode("latin-1").lstrip("/")
                return path + (f"?{rest}" if rest else "")
        bearer = _one(scope, b"authorization").removeprefix("Bearer ")
        if self._is_token(bearer) or self._is_token(_cookie(_one(scope, b"cookie"))):
            return None
        raise Refused(401, "The token is missing or wrong. Open the address that ragen view has printed.")

    def _is_token(self, text: str) -> bool:
        assert self.token is not None
        return hmac.compare_digest(text.encode("utf-8", "surrogateescape"), self.token.encode())


def _one(scope: Scope, name: bytes) -> str:
    """A header; two of one name are as good as none."""
    found = [value for key, value in scope["headers"] if key == name]
    return found[0].decode("latin-1").strip() if len(found) == 1 else ""


def _hostname(host: str) -> str:
    """[::1]:8000 -> ::1, localhost:8000 -> localhost"""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def _cookie(header: str) -> str:
    try:
        cookie = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return ""
    return cookie.value if cookie else ""


async def _answer(send: Send, status: int, text: bytes, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    own = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*own, *headers]})
    await send({"type": "http.response.body", "body": text})
