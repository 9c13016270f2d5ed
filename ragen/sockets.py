"""A port to serve on: what goes wrong is said before anything is served, with the option that helps."""

from __future__ import annotations

import errno
import socket

from ragen.errors import ConfigError

FIRST_FREE = 1024
"""Ports below it are the system's."""


def listen(host: str, port: int, *, program: str, default_port: int) -> socket.socket:
    """A socket that listens; port 0 takes any that is free. Messages name the `program` and its options."""
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"--host {host}: there is no such address ({error}).") from error
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(where)
        listener.listen()
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            other = port + 1 if port < 65535 else default_port
            raise ConfigError(
                f"Port {port} is in use, perhaps by another {program}. Give another one, for example "
                f"--port {other}; --port 0 takes any that is free."
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM):
            raise ConfigError(
                f"Port {port} is not for everybody. Give one above {FIRST_FREE - 1}: --port {default_port}"
            ) from error
        raise ConfigError(f"--host {host} --port {port}: {error.strerror}.") from error
    return listener
