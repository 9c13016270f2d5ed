"""The pages of the repository become pages of the site: links, and the reference of all that ragen offers."""

import logging
from pathlib import Path

import pytest

import ragen
from tools import docs_hooks

ROOT = Path(__file__).parents[2]


def rewrite(markdown: str, source: str, source_url: str = "") -> str:
    return docs_hooks.site_links(markdown, source, root=ROOT, source_url=source_url)


@pytest.mark.parametrize(
    ("source", "link", "expected"),
    [
        ("README.md", "[T](docs/training.md#is-it-healthy)", "[T](training.md#is-it-healthy)"),
        ("README.md", "![P](docs/figures/view.png)", "![P](figures/view.png)"),
        ("docs/training.md", "[T](python.md)", "[T](python.md)"),
        ("docs/training.md", "[T](../README.md)", "[T](index.md)"),
        ("docs/results/levels.md", "[T](../training.md)", "[T](../training.md)"),
        ("docs/results/levels.md", "[T](sweeps.md)", "[T](sweeps.md)"),
        ("docs/training.md", "[T](#below)", "[T](#below)"),
        ("docs/training.md", "[T](https://example.com/a)", "[T](https://example.com/a)"),
    ],
)
def test_links_between_pages_lead_from_page_to_page(source, link, expected):
    assert rewrite(link, source) == expected


def test_a_link_into_the_repository_becomes_text_that_names_the_file():
    assert rewrite("[`Turn`](../ragen/types.py)", "docs/a.md") == '<abbr title="ragen/types.py">`Turn`</abbr>'
    assert rewrite("[two\nlines](../examples)", "docs/a.md") == '<abbr title="examples">two\nlines</abbr>'


def test_with_an_address_of_the_repository_the_link_leads_there():
    url = "https://example.com/ragen/blob/main/"
    assert rewrite("[`Turn`](../ragen/types.py)", "docs/a.md", url) == f"[`Turn`]({url}ragen/types.py)"
    assert rewrite("[Apache](LICENSE)", "README.md", url) == f"[Apache]({url}LICENSE)"


def test_code_is_left_as_it_is():
    text = "`a[0](../ragen/types.py)` and ``b`[1](LICENSE)``\n```python\nf[x](../LICENSE)\n```\n"
    assert rewrite(text, "docs/a.md") == text


def test_a_link_to_no_file_is_a_warning(caplog):
    with caplog.at_level(logging.WARNING, logger="mkdocs"):
        rewrite("[`Gone`](../ragen/gone.py)", "docs/a.md")
    assert [record.getMessage() for record in caplog.records] == [
        "docs/a.md: the link [`Gone`](../ragen/gone.py) leads to no file."
    ]


def test_the_reference_holds_every_name_that_ragen_offers(caplog):
    names = docs_hooks.offered(ROOT / "ragen" / "__init__.py")
    assert names == [name for name in ragen.__all__ if name != "__version__"]
    with caplog.at_level(logging.WARNING, logger="mkdocs"):
        page = docs_hooks.reference(names)
    assert caplog.records == []
    assert sorted(line.removeprefix("::: ragen.") for line in page.splitlines() if line.startswith(":::")) == names


def test_a_name_without_a_section_is_a_warning(caplog):
    names = docs_hooks.offered(ROOT / "ragen" / "__init__.py")
    with caplog.at_level(logging.WARNING, logger="mkdocs"):
        docs_hooks.reference([*names, "Novel"])
    assert "Novel is only in ragen.__all__" in caplog.text
