"""Processes that cannot outlive the one that started them."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path


def test_children_of_a_killed_scheduler_die_with_it(tmp_path):
    """Nobody is left to end them; the kernel does."""
    pid_file = tmp_path / "pid"
    child = f"import os, pathlib, time; pathlib.Path({str(pid_file)!r}).write_text(str(os.getpid())); time.sleep(60)"
    parent = (
        "import os, signal, sys, time\nfrom pathlib import Path\nfrom ragen.sweeps.driving.child import start_child\n"
        f"start_child([sys.executable, '-c', {child!r}], log=Path({str(tmp_path / 'log')!r}), environment={{}}, "
        "is_appended=False)\n"
        f"while not Path({str(pid_file)!r}).exists(): time.sleep(0.01)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    code = os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", parent])
    assert code == -signal.SIGKILL
    deadline = time.monotonic() + 60
    while not pid_file.read_text() or Path(f"/proc/{pid_file.read_text()}/exe").exists():
        assert time.monotonic() < deadline, "the child outlived its parent"
        time.sleep(0.02)
