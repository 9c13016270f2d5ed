"""`ragen list`: what there is, what it is, and where it comes from."""

import pytest

from ragen.api.listing import KEYS, SOURCES, list_parts
from ragen.cli import main
from tests.api.own import install_points


@pytest.mark.parametrize("what", KEYS)
def test_everything_built_in_has_a_sentence(what, capsys):
    assert main(["list", what]) == 0
    shown = capsys.readouterr().out
    parts = list_parts(what)
    assert parts and all(part.sentence.endswith(".") and part.origin == "built in" for part in parts)
    assert shown.startswith(f"{KEYS[what]} takes:") and all(part.sentence in shown for part in parts)
    assert ("one of your own" in shown) is (what != "engines")


def test_an_installed_package_is_named(tmp_path, monkeypatch):
    points = {"loo": "tests.api.own:loo", "gone": "tests.api.own:gone", "grpo": "tests.api.own:loo"}
    install_points(tmp_path, points)
    monkeypatch.syspath_prepend(tmp_path)
    rows = {part.name: part for part in list_parts("estimators") if part.origin != "built in"}
    assert rows["loo"].sentence == "Each row's return, less the mean of the other rows of its group."
    assert rows["loo"].origin == "entry point of own-parts (tests.api.own:loo)"
    assert rows["gone"].sentence.startswith("Cannot be used: entry point ragen.estimators=gone")
    assert rows["grpo"].sentence == "Hidden by what is built in under this name."


def test_keys_and_sources_are_the_same_words():
    assert list(KEYS) == list(SOURCES)
