"""uvicorn around the application: address, port in use, Ctrl-C."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from ragen.errors import needing_extra
from ragen.files import readable
from ragen.sockets import listen
from ragen.tracking.console import console
from ragen.view.pages import INDEX, read_page_file, script_hashes
from ragen.view.playing.model import Model, playable
from ragen.view.reading.folders import existing
from ragen.view.security import App, Guard, content_security_policy, is_loopback

HOST = "127.0.0.1"
PORT = 7860
TOKEN_VARIABLE = "RAGEN_VIEW_TOKEN"
"""Of the environment: the token of another address than loopback; without it one is drawn."""
GRACE_S = 1
"""Seconds after Ctrl-C in which answers under way may end."""


def serve(
    folders: Sequence[Path],
    *,
    host: str = HOST,
    port: int = PORT,
    opens_browser: bool = False,
    play: str | None = None,
) -> None:
    """Serve the runs below the folders until Ctrl-C; the model `play` answers on the Play page."""
    roots = existing(folders)
    player = playable(play) if play else None
    with needing_extra("view", "ragen view needs Starlette and uvicorn, which are not installed"):
        import sse_starlette  # noqa: F401
        import uvicorn

    token = None if is_loopback(host) else os.environ.get(TOKEN_VARIABLE) or secrets.token_urlsafe(24)
    listener = listen(host, port, program="ragen view", default_port=PORT)
    model = Model(player) if player else None
    app = guarded(roots, host=host, token=token, model=model)
    address = address_of(host, listener.getsockname()[1], token)
    console.print(f"Runs below {', '.join(map(str, roots))}: {address}   (Ctrl-C ends it)", soft_wrap=True)
    if opens_browser:
        webbrowser.open(address)
    config = uvicorn.Config(
        app, log_level=logging.WARNING, access_log=False, timeout_graceful_shutdown=GRACE_S, server_header=False
    )
    with listener, contextlib.closing(model) if model else contextlib.nullcontext():
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listener])


def guarded(roots: Sequence[Path], *, host: str = HOST, token: str | None = None, model: Model | None = None) -> App:
    """The application behind its guard."""
    from ragen.view.api import build_app

    names = {host, socket.gethostname(), socket.getfqdn()} if token else {host}
    html, _ = readable(lambda: read_page_file(INDEX), (b"", ""))  # a checkout without its page has the API all the same
    policy = content_security_policy(script_hashes(html))
    return Guard(build_app(list(roots), model), hosts=names, token=token, policy=policy)


def address_of(host: str, port: int, token: str | None) -> str:
    """http://127.0.0.1:7860/; of all addresses of the machine its name is shown."""
    name = socket.gethostname() if host in ("0.0.0.0", "::") else host
    name = f"[{name}]" if ":" in name else name
    return f"http://{name}:{port}/" + (f"?token={token}" if token else "")
