"""A client that talks to the guarded application as a browser does."""

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

with warnings.catch_warnings():  # it asks for a successor of httpx that nothing else here needs
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

from ragen.view.server import guarded


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where indexes go, also those of commands that a test starts."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """Of the folder tmp_path/runs."""
    (tmp_path / "runs").mkdir(exist_ok=True)
    with TestClient(guarded([tmp_path / "runs"]), base_url="http://127.0.0.1", follow_redirects=False) as found:
        yield found
