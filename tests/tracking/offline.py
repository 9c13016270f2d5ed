"""Trackers in processes of their own: an empty home, and connections that are refused and remembered."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

PRELUDE = """
import socket, sys
from pathlib import Path
asked = []
def refuse(*address, **options):
    asked.append(address)
    raise OSError("no network")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
from tests.tracking.trackers import some_trackers
"""


def run_python(code: str, home: Path) -> subprocess.CompletedProcess[str]:
    """`asked` holds the addresses that anybody looked up or connected to; no server that is named is used."""
    home.mkdir(exist_ok=True)
    # Of tests and automatic builds MLflow counts nothing; a user's process is neither.
    away = ("MLFLOW_", "TRACKIO_", "HF_", "PYTEST_", "CI", "GITHUB_", "DO_NOT_TRACK")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(away)}
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + code],
        cwd=ROOT,
        env=kept | {"HOME": str(home), "TRACKIO_SPACE_ID": "me/space", "MLFLOW_TRACKING_URI": "http://127.0.0.1:9"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
