"""Sweeps as a user starts them: dry runs in this process, real ones in small."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from ragen.cli.sweep import main
from ragen.studies.outcomes import Outcome
from ragen.sweeps.driving.backend import LocalBackend
from ragen.sweeps.driving.run import Run
from ragen.sweeps.driving.scheduler import Scheduler
from ragen.sweeps.driving.slots import Slot
from ragen.sweeps.driving.view import LineView

REPOSITORY = Path(__file__).parents[2]

# The embedded bandit model: a run takes a second after torch is loaded.
SMALL = (
    "--model-path=tiny",
    "es_manager.train.env_configs.tags=[Bandit]",
    "agent_proxy.max_turn=1",
    "agent_proxy.max_actions_per_turn=1",
    "es_manager.train.env_groups=2",
    "es_manager.train.group_size=4",
    "es_manager.val.env_groups=8",
    "ppo_mini_batch_size=8",
    "actor_rollout_ref.rollout.response_length=32",
    "trainer.test_freq=1",
    "trainer.logger=[console]",
    "trainer.gradient_analysis_mode=False",
)


def dry_run(capsys, word: str, *arguments: str) -> list[dict[str, str]]:
    """The overrides of every command that would be started, with GPUs under CUDA_VISIBLE_DEVICES."""
    assert main([word, "--dry-run", *arguments]) == 0
    commands = []
    for line in capsys.readouterr().out.splitlines():
        if line.startswith("env "):
            _, devices, _, *rest = shlex.split(line)
            assert rest[:5] == ["-m", "ragen.cli", "train", "--config-name", "_2_sokoban"]
            commands.append(dict(word.split("=", 1) for word in [devices, *rest[5:]]))
    return commands


def start_sweep(folder: Path, word: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "ragen.cli", "sweep", word, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def fields_of(line: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in line.split(" | "))


def processes_in(folder: Path) -> list[int]:
    """The processes that work in a folder, this one and zombies aside."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cwd").readlink() == folder.resolve():
                found.append(int(entry.name))
        except OSError:  # gone meanwhile, or somebody else's
            continue
    return [pid for pid in found if pid != os.getpid()]


def wait_for(is_so: Callable[[], bool], what: str, *, timeout: float = 120) -> None:
    deadline = time.monotonic() + timeout
    while not is_so():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.02)


def script_run(folder: Path, name: str, script: str) -> Run:
    """A run whose command is a few lines of Python, below `folder`."""
    return Run(
        name=name,
        command=(sys.executable, "-c", script),
        log=folder / "logs" / f"{name}.log",
        run_dir=folder / "runs" / name,
        total_steps=3,
        value=name,
        fields={"value": name},
    )


def writing(folder: Path, state: str, *, early_stop: str | None = None, cause: str = "", success: float = 0.5) -> str:
    """A program that leaves a run directory behind, as the trainer does."""
    record = {"step": 3, "val-env/Bandit/success": success, "timing_s/train_total": 1.5, "timing_s/total": 2.0}
    status = {"state": state, "early_stop": early_stop, "cause": cause, "seconds": 1.0}
    return (
        "import pathlib, time\n"
        f"run = pathlib.Path({str(folder)!r}); run.mkdir(parents=True, exist_ok=True)\n"
        f"(run / 'metrics.jsonl').write_text({json.dumps(record)!r} + chr(10))\n"
        f"(run / 'status.json').write_text({json.dumps(status)!r})\n"
    )


SLOTS = [Slot(devices=gpu, size=1, label="1xH100") for gpu in "01"]


def work(runs: list[Run], *, slots=SLOTS, view=None) -> tuple[dict[str, Outcome], list[str], Scheduler]:
    """Outcomes, names in the order of their ends, and the scheduler."""
    outcomes, order = {}, []

    def on_end(run: Run, outcome: Outcome) -> None:
        outcomes[run.name] = outcome
        order.append(run.name)

    scheduler = Scheduler(runs, LocalBackend(slots), view=view or LineView(quiet()), on_end=on_end)
    scheduler.work()
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
