"""Servers that tests start in this process, each on a port of its own."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ragen.env.openenv.server import HOST


@contextmanager
def running(app: Any) -> Iterator[str]:
    """Serve an application in a thread; the value is its address."""
    import uvicorn

    listener = socket.create_server((HOST, 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="websockets-sansio", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        assert thread.is_alive(), "the server did not start"
        yield f"http://{HOST}:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
