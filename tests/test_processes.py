"""What a test leaves running is ended with all that is below it."""

import subprocess
import sys

from tests.processes import STARTED, end_started, processes

PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""


def test_what_a_test_left_running_is_killed_with_its_children():
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert child in processes(parent.pid)
    STARTED.append(parent)
    end_started()
    assert parent.returncode == -9 and not processes(parent.pid) and not STARTED
