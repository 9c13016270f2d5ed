"""A real Chromium in front of a real server that serves real runs."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.view.browser.pages import Visitor

ROOT = Path(__file__).parents[3]
CHROMIUM = shutil.which("chromium")
TINY = (
    "es_manager.train.env_groups=4", "es_manager.train.group_size=4",
    "es_manager.val.env_groups=8", "trainer.test_freq=1",
    "trainer.save_freq=-1", "ppo_mini_batch_size=8", "collapse_detection.compute_freq=0",
)  # fmt: skip
"""Overrides of config/quickstart.yaml: a step takes about a second."""


NO_BROWSER = "No chromium is installed, so the page of ragen view was not tested. Run: make browser"


@pytest.fixture(scope="session", autouse=True)
def need_chromium() -> None:
    if CHROMIUM is None:
        pytest.skip(NO_BROWSER)


def pytest_terminal_summary(terminalreporter) -> None:
    """One line that is seen without any option of pytest."""
    if CHROMIUM is None:
        terminalreporter.write_line(NO_BROWSER, yellow=True)


def start_training(folder: Path, *overrides: str) -> subprocess.Popen[bytes]:
    """A training run as a user starts it, in the background."""
    command = [sys.executable, "train.py", "--config-name", "quickstart", f"trainer.default_local_dir={folder}"]
    log = open(folder.parent / f"{folder.name}.log", "wb")  # noqa: SIM115 - the child keeps it
    with log:
        return subprocess.Popen([*command, *TINY, *overrides], cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run `first` of three steps, and its twin `second` of another seed."""
    folder = tmp_path_factory.mktemp("view") / "runs"
    folder.mkdir()
    training = start_training(folder / "first", "trainer.total_training_steps=3")
    assert training.wait() == 0, (folder / "first.log").read_text()
    shutil.copytree(folder / "first", folder / "second")
    config = folder / "second" / "config.yaml"
    config.write_text(re.sub(r"(?m)^(seed:.*\n  train: )\d+", r"\g<1>4321", config.read_text()))
    assert "4321" in config.read_text()
    return folder


@pytest.fixture(scope="session")
def address(runs: Path) -> Iterator[str]:
    """Where `ragen view` serves them."""
    command = [sys.executable, "-m", "ragen.cli", "view", str(runs), "--port", "0"]
    environment = os.environ | {"XDG_CACHE_HOME": str(runs.parent / "cache"), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        found = None
        while found is None:
            line = server.stdout.readline()
            assert line, "ragen view ended before it printed an address"
            found = re.search(r"http://127\.0\.0\.1:\d+", line)
        yield found[0]
        server.terminate()


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM)
        yield chromium
        chromium.close()


@pytest.fixture
def visitor(browser, address: str) -> Iterator[Visitor]:
    """Somebody with a fresh browser profile. At the end nothing may have been logged or blocked."""
    with Visitor(browser, address) as someone:
        yield someone
        assert someone.complaints == []
