"""A client that talks to the guarded application as a browser does."""

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

with warnings.catch_warnings():  # it asks for a successor of httpx that nothing else here needs
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

from ragen.view.server import guarded


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """Of the folder tmp_path/runs."""
    (tmp_path / "runs").mkdir(exist_ok=True)
    with TestClient(guarded([tmp_path / "runs"]), base_url="http://127.0.0.1", follow_redirects=False) as found:
        yield found
