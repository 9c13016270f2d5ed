"""The measurement of checkpoints runs on small random weights."""

import subprocess
import sys

from tests.trainer.runs import REPOSITORY


def test_both_ways_are_measured(tmp_path):
    command = [sys.executable, "benchmarks/checkpoint.py", "--shape", "0.5M", "--device", "cpu", "--saves", "1"]
    done = subprocess.run(
        [*command, "--lead", "0", "--folder", str(tmp_path)], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[2:4]] == ["waiting", "beside"]
    assert not list(tmp_path.iterdir())
