"""The table of legacy keys."""

from pathlib import Path

from ragen.files import flatten, read_yaml
from ragen.legacy.settings import LEGACY_DIR
from ragen.legacy.table import TABLE, to_markdown

ROOT = Path(__file__).parents[2]


def test_every_key_with_a_default_has_a_row_and_every_row_a_default():
    defaults = flatten(read_yaml(LEGACY_DIR / "base.yaml"))
    for env in ("sokoban", "frozenlake", "two_armed_bandit"):
        names = flatten(read_yaml(LEGACY_DIR / f"{env}.yaml"))
        defaults |= {key: value for key, value in names.items() if key in TABLE}
    assert set(defaults) == set(TABLE)


def test_the_page_shows_the_table():
    page = (ROOT / "docs" / "legacy.md").read_text()
    assert to_markdown() in page, "run: python -c 'from ragen.legacy.table import to_markdown; print(to_markdown())'"
