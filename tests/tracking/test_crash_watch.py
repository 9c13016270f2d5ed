"""A process that is killed still leaves a status behind."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ragen.tracking.run_card import begin_card, read_card
from ragen.tracking.rundir import RunDir, read_status
from tests.tracking.trackers import config_of_loggers

PROGRAM = """
import os, signal, sys
from pathlib import Path
from ragen.tracking.crash_watch import CrashWatch
from ragen.tracking.rundir import RunDir

run = RunDir(Path(sys.argv[1]))
run.write_status("running", step=7)
with CrashWatch(run.path):
    if sys.argv[2] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if sys.argv[2] == "finished":
        run.write_status("finished", step=8)
"""


def end(tmp_path: Path, how: str) -> subprocess.CompletedProcess:
    """A process that ends so; the one that watches it is awaited with it, since they share stderr."""
    return subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path), how], capture_output=True, text=True)


def test_a_killed_process_has_failed_at_its_last_step(tmp_path):
    done = end(tmp_path, "killed")
    assert done.returncode == -signal.SIGKILL
    status = read_status(tmp_path)
    assert (status["state"], status["step"], status["exit_code"]) == ("failed", 7, 1)
    assert "ended without a word" in status["reason"] and "Failed at step 7" in done.stderr


@pytest.mark.parametrize(("how", "state"), [("finished", "finished"), ("left", "running")])
def test_a_process_that_ends_by_itself_keeps_its_status(tmp_path, how, state):
    done = end(tmp_path, how)
    assert (done.returncode, done.stderr) == (0, "")
    assert read_status(tmp_path)["state"] == state


def test_the_card_of_a_killed_process_is_ended(tmp_path):
    begin_card(tmp_path, config_of_loggers(), device="cpu", from_step=0)
    end(tmp_path, "killed")
    card = read_card(tmp_path)
    assert (card["ending"]["state"], card["attempts"][0]["state"]) == ("failed", "failed")
    assert card["attempts"][0]["seconds"] > 0


def test_a_status_that_was_written_before_the_end_stays(tmp_path):
    RunDir(tmp_path).write_status("finished", step=3)
    before = (tmp_path / "status.json").read_text()
    words = [sys.executable, "-m", "ragen.tracking.crash_watch", str(tmp_path)]
    assert subprocess.run(words, stdin=subprocess.DEVNULL).returncode == 0
    assert (tmp_path / "status.json").read_text() == before
