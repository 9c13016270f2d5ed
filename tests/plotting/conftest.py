"""One run and its figures, for every test that reads them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ragen.plotting.gradient_command import main
from ragen.tracking.rundir import RunDir
from tests.plotting.drawing import ROOT
from tests.plotting.synthetic import fill


@pytest.fixture(scope="session")
def run(tmp_path_factory) -> Path:
    """A run directory with analyses at steps 1, 51 and 101."""
    path = tmp_path_factory.mktemp("runs") / "my run"
    fill(RunDir(path))
    return path


@pytest.fixture(scope="session")
def drawn(run, tmp_path_factory) -> Path:
    """The figures of step 51 of the run directory."""
    folder = tmp_path_factory.mktemp("drawn")
    assert main(["--run-dir", str(run), "--step", "51", "--output-dir", str(folder)]) == 0
    return folder


@pytest.fixture(scope="session")
def wandb_folder(tmp_path_factory) -> Path:
    """The same run, logged by the real wandb without a network."""
    pytest.importorskip("wandb")
    path = tmp_path_factory.mktemp("offline")
    code = f"""
from pathlib import Path
from tests.plotting.synthetic import fill
from tests.tracking.trackers import some_trackers
with some_trackers(Path({str(path)!r}), "wandb") as trackers:
    fill(trackers)
"""
    environment = os.environ | {"WANDB_MODE": "offline", "HOME": str(path)}
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=True, timeout=120)
    (folder,) = path.glob("wandb/offline-run-*")
    return folder
