"""Every command of the README runs, in its order, in an empty folder."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from ragen.tracking.rundir import read_metrics
from ragen.tracking.validation import read_references

ROOT = Path(__file__).parents[1]
FEWER_LEVELS = {  # where the README shows no number, few levels do
    "eval": ["es_manager.val.env_groups=8"],
    "ragen.llm_agent.agent_proxy": ["es_manager.val.env_groups=8"],
    "sft": ["es_manager.val.env_groups=32"],
    "trainer.experiment_name=ppo": ["es_manager.val.env_configs.n_groups=[32,32]", "es_manager.val.env_groups=64"],
    "trainer.experiment_name=probe": ["es_manager.val.env_groups=8"],
}


def readme_commands() -> list[str]:
    blocks = re.findall(r"```bash\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith(("make ", "source "))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An empty folder in which `make demo` has run, on fewer levels."""
    path = tmp_path_factory.mktemp("readme")
    for name in ("examples", "gradient_analysis", "train.py"):
        (path / name).symlink_to(ROOT / name)
    result = run(["ragen", "demo", "--levels", "24", "trainer.total_training_steps=2", "trainer.test_freq=1"], path)
    assert result.returncode == 0, result.stderr
    for text in ("Bandit", "FrozenLake", "CoordSokoban", "solver", "random policy", "Learning curve"):
        assert text in result.stdout
    trained = path / "results/demo/train_frozen_lake"
    assert (trained / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert read_references(trained)["FrozenLake"]["solver"] == 1
    assert json.loads((trained / "status.json").read_text())["state"] == "finished"
    return path


def run(words: list[str], folder: Path) -> subprocess.CompletedProcess:
    # train.sh works from any folder; the others are found where the README says.
    programs = {"ragen": [sys.executable, "-m", "ragen.cli"], "python": [sys.executable], "bash": ["bash"]}
    program = programs[words[0]]
    words = [str(ROOT / word) if word == "train.sh" else word for word in words]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*program, *words[1:]], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )


def view(words: list[str], folder: Path) -> None:
    """The page is served until Ctrl-C, and lists what the commands before it have left."""
    command = [sys.executable, "-u", "-m", "ragen.cli", *words[1:], "--port", "0"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        address = re.search(r"http://127\.0\.0\.1:\d+/", child.stdout.readline())
        assert address is not None
        with urllib.request.urlopen(f"{address[0]}api/runs") as answer:
            names = {run["name"] for run in json.load(answer)["runs"]}
        child.send_signal(signal.SIGINT)
    assert {"first", "train_frozen_lake"} <= names
    assert child.returncode == 0


def success(folder: Path, run: str, *, step: int) -> float:
    (row,) = (row for row in read_metrics(folder / "checkpoints/ragen" / run) if row["step"] == step)
    return row["val-env/Bandit/success"]


@pytest.mark.parametrize("command", readme_commands())
def test_a_readme_command_runs(folder, command):
    words = shlex.split(command)
    if words[:2] == ["ragen", "view"]:
        return view(words, folder)
    is_evaluation = "eval" in words or "ragen.llm_agent.agent_proxy" in words
    is_training = "train.py" in words
    before = set(folder.glob("results/*"))
    result = run(words + [key for word in words for key in FEWER_LEVELS.get(word, ())], folder)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()
    if is_evaluation:
        (new,) = set(folder.glob("results/*")) - before
        assert (new / "metrics.jsonl").exists()
        assert list((new / "episodes").iterdir())
    if is_training:
        name = next(word.partition("=")[2] for word in words if word.startswith("trainer.experiment_name="))
        steps = next(word.partition("=")[2] for word in words if word.startswith("trainer.total_training_steps="))
        checkpoint = folder / f"checkpoints/ragen/{name}/global_step_{steps}/actor"
        assert (checkpoint / "model.safetensors").exists()
    if "trainer.experiment_name=first" in words:
        assert success(folder, "first", step=50) > success(folder, "first", step=0) + 0.08  # the README says +0.18
    if "plot" in words:
        assert (folder / "checkpoints/ragen/first/learning_curve.png").exists()
    if "gradient_analysis/plot_gradient_analysis.py" in words:
        assert len(list(folder.glob("gradient_analysis_outputs/probe/*_step_1.*"))) == 7
    if "gradient_analysis/plot_collapse.py" in words:
        assert list((folder / "checkpoints/ragen/first").glob("*collapse*.png"))
    if "sft" in words:
        assert (folder / "models/lake/merged_model/model.safetensors").exists()
    if "--png" in words:
        assert list((folder / "results/demo/pictures").glob("*.png"))
