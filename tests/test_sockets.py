"""A port that cannot be had is explained with the option that helps."""

import errno
import os
import socket

import pytest

from ragen import sockets
from ragen.errors import ConfigError


def listen(host: str = "127.0.0.1", port: int = 0) -> socket.socket:
    return sockets.listen(host, port, program="ragen view", default_port=7860)


def test_a_free_port_is_taken():
    with listen() as listener, socket.create_connection(listener.getsockname()) as client:
        assert client.getpeername()[1] == listener.getsockname()[1] > 0


def test_a_port_in_use_is_explained():
    with listen() as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"Port {port} is in use, perhaps by another ragen view\..*{port + 1}"):
            listen(port=port)


def refusing(code: int) -> type[socket.socket]:
    """A socket of a user who may not have this port."""

    class Refusing(socket.socket):
        def bind(self, address):
            raise OSError(code, os.strerror(code))

    return Refusing


def test_a_port_of_the_system_is_explained(monkeypatch):
    monkeypatch.setattr(socket, "socket", refusing(errno.EACCES))
    with pytest.raises(ConfigError, match=r"Port 80 is not for everybody\. Give one above 1023: --port 7860"):
        listen(port=80)


def test_an_address_that_is_not_there_is_named(monkeypatch):
    with pytest.raises(ConfigError, match=r"--host no\.such\.invalid: there is no such address"):
        listen("no.such.invalid")
    monkeypatch.setattr(socket, "socket", refusing(errno.EADDRNOTAVAIL))
    with pytest.raises(ConfigError, match=r"--host 10\.9\.8\.7 --port 7000: Cannot assign requested address\."):
        listen("10.9.8.7", 7000)


def test_the_last_port_has_no_next_one(monkeypatch):
    monkeypatch.setattr(socket, "socket", refusing(errno.EADDRINUSE))
    with pytest.raises(ConfigError, match="--port 7860; --port 0"):
        listen(port=65535)
