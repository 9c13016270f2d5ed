"""Every command of the README runs, in its order, in an empty folder."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LEVELS = ["es_manager.val.env_groups=8", "es_manager.val.env_configs.n_groups=[8]"]


def readme_commands() -> list[str]:
    blocks = re.findall(r"```bash\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith(("make ", "source "))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An empty folder in which `make demo` has run, on fewer levels."""
    path = tmp_path_factory.mktemp("readme")
    (path / "examples").symlink_to(ROOT / "examples")
    result = run(["ragen", "demo", "--levels", "24"], path)
    assert result.returncode == 0, result.stderr
    for text in ("bandit", "frozen_lake", "sokoban", "solver", "random policy"):
        assert text in result.stdout
    return path


def run(words: list[str], folder: Path) -> subprocess.CompletedProcess:
    program = {"ragen": [sys.executable, "-m", "ragen.cli"], "python": [sys.executable]}[words[0]]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*program, *words[1:]], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize("command", readme_commands())
def test_a_readme_command_runs(folder, command):
    words = shlex.split(command)
    is_evaluation = "eval" in words or "ragen.llm_agent.agent_proxy" in words
    before = set(folder.glob("results/*"))
    result = run(words + LEVELS if is_evaluation else words, folder)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()
    if is_evaluation:
        (new,) = set(folder.glob("results/*")) - before
        assert (new / "metrics.jsonl").exists()
        assert list((new / "episodes").iterdir())
    if "--png" in words:
        assert list((folder / "results/demo/pictures").glob("*.png"))
