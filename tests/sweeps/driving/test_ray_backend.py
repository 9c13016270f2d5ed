"""Runs as Ray tasks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.sweeps.sweeping import REPOSITORY, SMALL, fields_of, script_run, start_sweep


def test_a_sweep_on_a_local_ray(tmp_path):
    """In a process of its own: Ray keeps threads and sockets about."""
    folder = tmp_path / "logs/kl_sweep_tiny/nofilter"
    (folder / "01/sokoban_kl_sweep_nofilter_01-tiny.log").mkdir(parents=True)  # a folder in the place of the file
    arguments = ["--kl-values", "0.01,0.1", "--steps", "1", "--ray", "local"]
    sweep = start_sweep(tmp_path, "kl", *arguments, *SMALL)
    output, _ = sweep.communicate(timeout=200)
    assert sweep.returncode == 1, output
    assert "sokoban_kl_sweep_nofilter_001-tiny: done, step 1 of 1" in output
    good = fields_of((folder / "001/sokoban_kl_sweep_nofilter_001-tiny.result").read_text().strip())
    assert (good["status"], good["gpu"]) == ("success", "1xCPU")
    bad = (folder / "01/sokoban_kl_sweep_nofilter_01-tiny.result").read_text()
    assert "status=fail" in bad and "cannot be started" in bad
    assert (
        "values: 0.01,0.1 | seeds: 1 | steps: 1 | GPUs: by Ray (local)"
        in (tmp_path / "logs/kl_sweep_tiny.log").read_text()
    )
    assert (tmp_path / "logs/kl_sweep_tiny_report.png").stat().st_size > 10_000


@pytest.mark.parametrize("disposition", [signal.SIG_DFL, signal.SIG_IGN], ids=["terminal", "nohup"])
def test_tasks_of_a_sweep_that_is_stopped_end_their_processes(tmp_path, disposition):
    program = f"""
import time
from pathlib import Path
from ragen.sweeps.driving.ray_backend import RayBackend
from ragen.sweeps.driving.slots import Slot
from tests.sweeps.sweeping import script_run

wait = "import time; print('up', flush=True); time.sleep(100)"
backend = RayBackend("local", [Slot(devices="", size=1, label="1xCPU")])
runs = [script_run(Path({str(tmp_path)!r}), name, wait) for name in ("running", "waiting")]
jobs = [backend.start(run) for run in runs]
while not (jobs[0].device and runs[0].log.exists() and runs[0].log.read_text()):
    assert jobs[0].poll() is None  # which also learns the device
    time.sleep(0.05)
assert [job.device for job in jobs] == ["1xCPU", ""], "one CPU, one run"
backend.stop()
assert all(job.poll().exit_code for job in jobs)
assert "KeyboardInterrupt" in runs[0].log.read_text()
assert not runs[1].log.exists()
print("stopped")
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=lambda: signal.signal(signal.SIGINT, disposition),
    )
    assert done.stdout.endswith("stopped\n"), done.stderr


def test_a_task_that_is_cancelled_while_it_starts_its_process_ends_it(tmp_path, monkeypatch):
    from ragen.sweeps.driving import ray_backend

    run = script_run(tmp_path, "started", "import time; print('up', flush=True); time.sleep(100)")
    start_run = ray_backend.start_run

    def interrupted(*arguments):
        process = start_run(*arguments)
        while not run.log.read_text():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
        return process

    monkeypatch.setattr(ray_backend, "start_run", interrupted)
    monkeypatch.chdir(tmp_path)
    task = ray_backend.work(run, str(tmp_path), 1, False)
    assert next(task) == "1xCPU"
    with pytest.raises(KeyboardInterrupt):
        next(task)
    assert "KeyboardInterrupt" in run.log.read_text()
