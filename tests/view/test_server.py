"""The command, as one types it."""

import builtins
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from ragen.cli import main
from ragen.errors import MissingExtra
from ragen.view.server import address_of, serve
from tests.view.runs import write_run

ROOT = Path(__file__).parents[2]


def start(*arguments: str) -> tuple[subprocess.Popen[str], str]:
    """The command and the address that it prints."""
    command = [sys.executable, "-m", "ragen.cli", "view", *arguments, "--port", "0"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "300"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stdout
    line = process.stdout.readline()
    found = re.search(r"http://\S+", line)
    assert found, (line, process.stderr and process.stderr.read())
    return process, found[0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_serves_until_it_is_ended(tmp_path, number):
    write_run(tmp_path / "a")
    process, address = start(str(tmp_path))
    try:
        assert httpx.get(f"{address}api/runs").json()["runs"][0]["id"] == "0/a"
        loaded = Path(f"/proc/{process.pid}/maps").read_text()
        assert "libtorch" not in loaded
    finally:
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode in ({signal.SIGINT: 0, signal.SIGTERM: -signal.SIGTERM}[number], 0)
    assert errors == ""


def test_a_port_in_use_is_explained(tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["view", str(tmp_path), "--port", str(port)]) == 1
    assert f"error: Port {port} is in use, perhaps by another ragen view." in capsys.readouterr().err


def test_the_missing_extra_is_explained(tmp_path, monkeypatch):
    imported = builtins.__import__

    def without(name, *arguments, **options):
        if name == "uvicorn":
            raise ImportError(name)
        return imported(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=re.escape("pip install -e '.[view]'")):
        serve([tmp_path])


def test_mistakes_are_one_line(tmp_path, capsys):
    assert main(["view", str(tmp_path / "nope")]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(SystemExit):
        main(["view", "--port", "70000"])


def test_the_address_is_one_that_can_be_opened():
    assert address_of("127.0.0.1", 7860, None) == "http://127.0.0.1:7860/"
    assert address_of("::1", 1, "t") == "http://[::1]:1/?token=t"
    assert address_of("0.0.0.0", 1, "t") == f"http://{socket.gethostname()}:1/?token=t"
