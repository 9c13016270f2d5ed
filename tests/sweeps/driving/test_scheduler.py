"""Queue, slots and child processes, with commands that take no time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise

import pytest

from ragen.errors import Interrupted
from ragen.sweeps.driving.backend import LocalBackend
from ragen.sweeps.driving.scheduler import Scheduler
from ragen.sweeps.driving.view import LineView
from tests.sweeps.sweeping import REPOSITORY, SLOTS, quiet, runs_of_all_kinds, script_run, work, writing


def test_every_run_comes_to_its_own_end(tmp_path):
    outcomes, _, _ = work(runs_of_all_kinds(tmp_path))
    statuses = {name: outcome.status for name, outcome in outcomes.items()}
    assert statuses == {
        "good": "success",
        "early": "early_stopped",
        "bad": "fail",
        "silent": "fail",  # it never said that it finished
        "liar": "fail",
        "last": "success",
    }
    assert outcomes["early"].early_stop == "reward_variance_collapse"
    assert outcomes["bad"].last_lines == ("about to fail", "no such model")
    assert (tmp_path / "logs/bad.log").read_text() == "first line\nabout to fail\nno such model\n"


def test_a_run_that_cannot_be_started_stops_nobody(tmp_path):
    runs = [script_run(tmp_path, name, writing(tmp_path / "runs" / name, "finished")) for name in ("a", "b")]
    runs[0].run_dir.parent.mkdir()
    runs[0].run_dir.write_text("a file in the place of the run directory")
    outcomes, _, _ = work(runs, slots=SLOTS[:1])
    assert [outcomes[name].status for name in "ab"] == ["fail", "success"]
    assert "cannot be started" in outcomes["a"].last_lines[0]


def test_a_slot_runs_one_at_a_time_and_tells_its_gpu(tmp_path):
    script = (
        "import os, pathlib, time\nstart = time.time(); time.sleep(0.3)\n"
        'text = f\'{os.environ["CUDA_VISIBLE_DEVICES"]} {start} {time.time()} {os.environ["OMP_NUM_THREADS"]}\'\n'
        "pathlib.Path(r'OUT').write_text(text)\n"
    )
    runs = [script_run(tmp_path, str(i), script.replace("OUT", str(tmp_path / f"out{i}"))) for i in range(5)]
    work(runs)
    spans = [(tmp_path / f"out{i}").read_text().split() for i in range(5)]
    assert {gpu for gpu, *_ in spans} == {"0", "1"}
    for gpu in "01":
        mine = sorted((float(start), float(end)) for used, start, end, _ in spans if used == gpu)
        assert all(first[1] <= second[0] for first, second in pairwise(mine))
    together = [a for a in spans for b in spans if a[0] != b[0] and float(a[1]) < float(b[2]) <= float(a[2])]
    assert together, "the two slots work side by side"
    assert {threads for *_, threads in spans} == {os.environ["OMP_NUM_THREADS"]}, "a setting of the user stays"


def test_a_run_in_progress_is_not_started_a_second_time(tmp_path):
    run = script_run(tmp_path, "a", writing(tmp_path / "runs/a", "finished"))
    run.run_dir.mkdir(parents=True)
    (run.run_dir / "status.json").write_text('{"state": "running"}')
    hold = "import time; from ragen.tracking.lock import run_lock; from pathlib import Path\n"
    hold += f"with run_lock(Path({str(run.run_dir)!r})): print('held', flush=True); time.sleep(100)"
    holder = subprocess.Popen([sys.executable, "-c", hold], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        outcomes, _, _ = work([run])
    finally:
        holder.kill()
        holder.communicate()
    assert outcomes["a"].status == "fail"
    assert f"is in use: process {holder.pid}" in outcomes["a"].last_lines[0]
    assert (run.run_dir / "status.json").read_text() == '{"state": "running"}'
    assert not run.command_file.exists()


def test_a_signal_ends_the_children(tmp_path):
    ready = tmp_path / "ready"
    script = (
        f"import pathlib, time\ntry:\n    pathlib.Path({str(ready)!r}).write_text('x'); time.sleep(60)\n"
        "except KeyboardInterrupt:\n    print('interrupted in good order')\n"
    )
    runs = [script_run(tmp_path, "long", script), script_run(tmp_path, "never", "pass")]
    scheduler = Scheduler(runs, LocalBackend(SLOTS[:1]), view=LineView(quiet()), on_end=lambda *_: None)

    def send() -> None:
        while not ready.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=send, daemon=True).start()
    with pytest.raises(Interrupted, match="SIGTERM"):
        scheduler.work()
    assert [state.phase for state in scheduler.states] == ["stopped", "queued"]
    assert [state.outcome.status for state in scheduler.states] == ["missing", "missing"]
    assert runs[0].log.read_text() == "interrupted in good order\n"
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, "handlers are put back"


# --- views
