"""The documentation builds as a site: every page and name is there, every link leads somewhere, nothing is fetched."""

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import ragen

ROOT = Path(__file__).parents[2]
MKDOCS = ROOT / ".venv-docs" / "bin" / "mkdocs"
SOURCES = ("README.md", "docs", "mkdocs.yml", "ragen", "tools")
"""All that a build reads or its pages link to, but for single files."""
BROKEN = ["[a](nowhere.md)", "[b](training.md#no-such-heading)", "[c](../ragen/gone.py)"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not MKDOCS.exists(), reason="mkdocs is not installed in .venv-docs. Run: make docs"),
]


@dataclass
class Html(HTMLParser):
    """What a page names: places to jump to, links, and files that a browser loads with it."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    assets: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids |= {values["id"]} if "id" in values else set()
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag in {"link", "script", "img", "iframe", "source"}:
            self.assets += [values[name] for name in ("src", "href") if name in values]


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "RAGEN_SOURCE_URL"}
    return subprocess.run(
        [MKDOCS, "build", "--strict", "--site-dir", site],
        cwd=root,
        env=environment | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Html]:
    found = {path: Html() for path in sorted(site.rglob("*.html"))}
    for path, page in found.items():
        page.feed(path.read_text())
    return found


def test_every_page_of_the_repository_is_a_page_of_the_site(site):
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in ROOT.glob("docs/**/*.md")}
    built = {path.relative_to(site) for path in site.rglob("*.html")}
    assert built == pages | {Path("index.html"), Path("reference.html"), Path("404.html")}


def test_the_readme_is_the_start_page(site):
    text = (site / "index.html").read_text()
    assert "plays text environments with a language model over" in text
    assert (site / "figures" / "view.png").exists()


def test_the_reference_explains_every_name_and_its_arguments(site, pages):
    page = pages[site / "reference.html"]
    names = [f"ragen.{name}" for name in ragen.__all__ if name != "__version__"]
    assert {*names, "ragen.Agent.play", "ragen.Trainer.rollout", "ragen.Turn.response_ids"} <= page.ids
    text = (site / "reference.html").read_text()
    assert "Episodes of each level; they differ in their sampling noise." in text  # an argument of Agent.play
    assert "Exactly as sampled." in text  # a field of Turn


def test_every_link_leads_to_a_page_and_a_place_on_it(site, pages):
    broken, followed = [], 0
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if (
                parts.scheme or path.name == "404.html"
            ):  # the latter is served at any address; its links begin at the root
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            followed += 1
            if not target.exists() or (parts.fragment and unquote(parts.fragment) not in pages[target].ids):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert followed > 1000
    assert broken == []


def test_nothing_is_loaded_from_another_host(pages):
    loaded = {asset for page in pages.values() for asset in page.assets}
    assert any(asset.endswith(".css") for asset in loaded)
    assert [asset for asset in loaded if urlsplit(asset).netloc] == []


def test_a_broken_link_or_anchor_is_an_error(tmp_path):
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tmp_path / name)
    with open(tmp_path / "docs" / "comparing.md", "a") as page:
        page.write("\n" + "\n".join(BROKEN) + "\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    for target in ("nowhere.md", "#no-such-heading", "../ragen/gone.py"):
        assert any("comparing.md" in line and target in line for line in done.stderr.splitlines()), done.stderr
