"""The registry that tests of fetched models download from."""

from pathlib import Path

import pytest

from tests.models.toy_registry import ToyRegistry


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ToyRegistry:
    return ToyRegistry(tmp_path, monkeypatch)
