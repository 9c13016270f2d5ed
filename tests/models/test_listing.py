"""The table of `ragen models`."""

import pytest

from ragen.cli import main
from ragen.models.catalogue import CATALOGUE
from ragen.models.fetch import fetch_model
from ragen.models.listing import short_count
from tests.models.toy_registry import NAME, ToyRegistry


def test_the_table_lists_every_model_and_its_state(registry: ToyRegistry, capsys: pytest.CaptureFixture[str]):
    fetch_model(NAME)
    assert main(["models"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line}
    assert "fetched" in rows[NAME]
    assert "135M" in rows["SmolLM2-135M-Instruct"]
    assert "93 MB to fetch  available" in rows["SmolLM2-135M-Instruct"]
    assert {"tiny/bandit", "tiny/frozen_lake", "tiny/sokoban", *CATALOGUE} <= rows.keys()


def test_counts_are_in_millions():
    assert [short_count(count) for count in (134_515_008, 170_000, 0)] == ["135M", "0.17M", "-"]
