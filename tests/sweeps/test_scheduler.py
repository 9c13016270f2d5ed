"""Queue, slots and child processes, with commands that take no time."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

from ragen.sweeps.backend import LocalBackend
from ragen.sweeps.results import Outcome, fields_of, outcome_before, write_result
from ragen.sweeps.run import Run, shell_line
from ragen.sweeps.scheduler import Scheduler
from ragen.sweeps.slots import Slot
from ragen.sweeps.view import LineView, TableView, make_view
from tests.sweeps.sweeping import REPOSITORY, script_run, writing

SLOTS = [Slot(devices=gpu, size=1, label="1xH100") for gpu in "01"]


def work(runs: list[Run], *, slots=SLOTS, view=None) -> tuple[dict[str, Outcome], list[str], Scheduler]:
    """Outcomes, names in the order of their ends, and the scheduler."""
    outcomes, order = {}, []

    def on_end(run: Run, outcome: Outcome) -> None:
        outcomes[run.name] = outcome
        order.append(run.name)

    scheduler = Scheduler(runs, LocalBackend(slots), view=view or LineView(quiet()), on_end=on_end)
    assert scheduler.work() is None
    return outcomes, order, scheduler


def quiet() -> Console:
    return Console(file=io.StringIO(), width=200)


def runs_of_all_kinds(folder: Path) -> list[Run]:
    run_dir = folder / "runs"
    return [
        script_run(folder, "good", writing(run_dir / "good", "finished", success=0.75)),
        script_run(folder, "early", writing(run_dir / "early", "early_stopped", early_stop="reward_variance_collapse")),
        script_run(folder, "bad", "print('first line'); print('about to fail'); raise SystemExit('no such model')"),
        script_run(folder, "silent", "pass"),
        script_run(folder, "liar", writing(run_dir / "liar", "finished") + "raise SystemExit(3)"),
        script_run(folder, "last", writing(run_dir / "last", "finished")),
    ]


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


def test_result_lines(tmp_path):
    runs = {run.name: run for run in runs_of_all_kinds(tmp_path)}
    outcomes, _, _ = work(list(runs.values()))
    lines = {name: replace(outcomes[name], wall_time=7.4).text for name in runs}
    times = "train_time=1.50s | eval_time=N/A | total_time=2.00s | wall_time=7s"
    assert lines["good"] == f"value=good | {times} | gpu=1xH100 | status=success\n"
    assert lines["early"].endswith(" | status=early_stopped | early_stop=reward_variance_collapse\n")
    unknown = "train_time=N/A | eval_time=N/A | total_time=N/A | wall_time=7s"
    assert lines["bad"] == f"value=bad | {unknown} | gpu=1xH100 | status=fail\n    about to fail / no such model\n"
    assert fields_of(replace(runs["good"], seed=2)) == {"value": "good", "seed": "2"}
    assert fields_of(replace(runs["good"], has_score=True)) == {"value": "good", "score": "N/A"}


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


def test_gpu_ids_enter_the_command(tmp_path):
    run = script_run(tmp_path, "a", "import sys; print(sys.argv[1:])")
    run = replace(run, command=(*run.command, "system.CUDA_VISIBLE_DEVICES='{devices}'"))
    work([run], slots=[Slot(devices="4,5", size=2, label="2xH100")])
    assert run.log.read_text() == "[\"system.CUDA_VISIBLE_DEVICES='4,5'\"]\n"
    assert "\"system.CUDA_VISIBLE_DEVICES='4,5'\"" in run.command_file.read_text()
    assert run.is_last_command(), "on whatever GPUs"


def test_only_the_same_command_is_done(tmp_path):
    run = script_run(tmp_path, "a", writing(tmp_path / "runs/a", "finished"))
    assert not run.is_done()
    work([run])
    assert run.is_done()
    assert not replace(run, command=(*run.command, "--more")).is_done()
    (run.run_dir / "status.json").write_text('{"state": "running"}')
    assert not run.is_done()


def test_a_former_end_does_not_outlive_the_next_start(tmp_path):
    """A kill between start and first word of a run with another command must not make it look finished."""
    run = script_run(tmp_path, "a", writing(tmp_path / "runs/a", "finished"))
    work([run])
    run.begin("0")
    assert run.is_done(), "the same command has been run to its end, whatever becomes of this start"
    other = replace(run, command=(*run.command, "--more"))
    other.begin("0")
    assert not other.is_done()
    assert not run.result.exists() and not run.result_record.exists()


def test_a_run_in_progress_is_not_started_a_second_time(tmp_path):
    run = script_run(tmp_path, "a", writing(tmp_path / "runs/a", "finished"))
    run.run_dir.mkdir(parents=True)
    (run.run_dir / "status.json").write_text('{"state": "running"}')
    hold = "import time; from ragen.tracking.lock import RunLock; from pathlib import Path\n"
    hold += f"RunLock(Path({str(run.run_dir)!r})).take(); print('held', flush=True); time.sleep(100)"
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


def test_the_outcome_of_a_run_of_a_former_sweep(tmp_path):
    run = script_run(tmp_path, "a", writing(tmp_path / "runs/a", "early_stopped", early_stop="low_validation_success"))
    outcomes, _, _ = work([run])
    assert outcome_before(run).wall_time == 1.0, "without a record the trainer's clock counts"
    run.result.write_text("value=a | wall_time=7s | gpu=8xH100 | status=success")
    assert (outcome_before(run).wall_time, outcome_before(run).device) == (1.0, "N/A"), "the line is for people"
    write_result(run, replace(outcomes["a"], wall_time=42.0))
    record = json.loads(run.result_record.read_text())
    assert (record["name"], record["status"], record["fields"]) == ("a", "early_stopped", {"value": "a"})
    assert run.result.read_text() == replace(outcomes["a"], wall_time=42.0).text
    before = outcome_before(run)
    assert (before.status, before.early_stop) == ("early_stopped", "low_validation_success")
    assert (before.wall_time, before.device, before.times["train_time"]) == (42.0, "1xH100", 1.5)


@pytest.mark.parametrize(
    ("state", "code", "status"),
    [
        ("early_stopped", 3, "early_stopped"),  # a result, also where nothing was learned
        ("early_stopped", 1, "fail"),
        ("finished", 3, "fail"),
        ("failed", 3, "fail"),
    ],
)
def test_the_status_counts_before_the_exit_code_where_a_run_stopped_early(tmp_path, state, code, status):
    script = writing(tmp_path / "runs/a", state, early_stop="empty_filtered_steps") + f"\nraise SystemExit({code})"
    outcomes, _, _ = work([script_run(tmp_path, "a", script)])
    assert outcomes["a"].status == status
    assert outcomes["a"].early_stop == ("empty_filtered_steps" if status == "early_stopped" else None)


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
    assert scheduler.work() == signal.SIGTERM
    assert [state.phase for state in scheduler.states] == ["stopped", "queued"]
    assert [state.outcome.status for state in scheduler.states] == ["missing", "missing"]
    assert runs[0].log.read_text() == "interrupted in good order\n"
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, "handlers are put back"


# --- views


def test_lines_tell_starts_validations_and_ends(tmp_path):
    output = quiet()
    work(runs_of_all_kinds(tmp_path)[:3], slots=SLOTS[:1], view=make_view(output))
    text = output.file.getvalue()  # type: ignore[attr-defined]
    assert "good: running, 1xH100" in text
    assert "good: done, step 3 of 3, validation success 0.750, 1xH100" in text
    assert "early: early stopped, step 3 of 3" in text and "reward_variance_collapse" in text
    assert "bad: failed, 1xH100" in text and "about to fail / no such model" in text


def test_a_terminal_shows_a_table(tmp_path):
    output = Console(file=io.StringIO(), width=160, height=30, force_terminal=True, color_system=None)
    view = make_view(output)
    assert isinstance(view, TableView)
    work(runs_of_all_kinds(tmp_path), view=view)
    last = output.file.getvalue().split("val success")[-1]  # type: ignore[attr-defined]
    rows = {line.split()[0]: line for line in last.splitlines() if line.strip()}
    assert "done" in rows["good"] and "3/3" in rows["good"] and "0.750" in rows["good"]
    assert "early stopped" in rows["early"] and "reward_variance_collapse" in rows["early"]
    assert "failed" in rows["bad"] and "no such model" in rows["bad"]
    assert "6 runs: 3 failed, 1 early stopped, 2 done" in last


def test_a_short_screen_shows_what_matters(tmp_path):
    output = Console(file=io.StringIO(), width=160, height=11, force_terminal=True, color_system=None)
    work(runs_of_all_kinds(tmp_path), view=make_view(output))
    last = output.file.getvalue().split("val success")[-1]  # type: ignore[attr-defined]
    assert all(name in last for name in ("bad", "silent", "liar"))
    assert "good" not in last and "(3 not shown)" in last


@pytest.mark.parametrize(
    "words, line",
    [
        (["python", "a=1"], "python a=1"),
        (["a='0,1'"], "\"a='0,1'\""),
        (["a=b c"], "'a=b c'"),
    ],
)
def test_commands_can_be_typed(words, line):
    assert shell_line(words) == line


def test_children_of_a_killed_scheduler_die_with_it(tmp_path):
    """Nobody is left to end them; the kernel does."""
    pid_file = tmp_path / "pid"
    child = f"import os, pathlib, time; pathlib.Path({str(pid_file)!r}).write_text(str(os.getpid())); time.sleep(60)"
    parent = (
        "import os, signal, sys, time\nfrom pathlib import Path\nfrom ragen.sweeps.child import start_child\n"
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
