"""A long run of the smallest bandit: memory, open files, threads and the time of a step must not grow.

    python benchmarks/soak.py                    # 10,000 steps; exit status 1 when something grew
    python benchmarks/soak.py --steps 1000 --keep /tmp/soak

It is an ordinary `train.py` in a process of its own, with validation, checkpoints, collapse metrics, gradient analysis
and episode files in their usual rhythm. The process is looked at from outside while it runs. The first fifth is
warm-up; the second fifth and the last are compared. The time of a step is shown and not judged: it belongs to the
machine.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from ragen.tracking.names import seconds
from ragen.tracking.rundir import read_metrics, read_status

ROOT = Path(__file__).parents[1]
SMALLEST = (
    "es_manager.train.env_groups=2",
    "es_manager.train.group_size=4",
    "es_manager.val.env_groups=4",
    "es_manager.val.env_configs.n_groups=[2,2]",
    "ppo_mini_batch_size=8",
    # The policy must stay as it is: a run that has learned everything has nothing left to do.
    "actor_rollout_ref.actor.optim.lr=1e-9",
    "actor_rollout_ref.rollout.rollout_filter_value=1",
    "actor_rollout_ref.rollout.rollout_filter_include_zero=True",
    "trainer.early_stop.variance_window=0",
    "trainer.early_stop.low_success_patience=0",
    "trainer.test_freq=50",
    "trainer.save_freq=100",
    "collapse_detection.compute_freq=50",
)
ALLOWED_MIB = 24
"""The allocator's own breathing; a leak of 3 KB a step is more over 8,000 steps."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """The process at one moment."""

    step: int
    memory_mib: float
    num_files: int
    num_threads: int


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the run directory here")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="ragen-soak-") as temporary:
        run = args.keep or Path(temporary) / "run"
        looks = watch(start(run, args.steps), run, every=max(1, args.steps // 200))
        if read_status(run)["state"] != "finished":
            print(f"The run ended as {read_status(run)}.")
            return 1
        return report(looks, [row[seconds("step")] for row in read_metrics(run) if seconds("step") in row])


def start(run: Path, num_steps: int) -> subprocess.Popen[bytes]:
    settings = [*SMALLEST, f"trainer.total_training_steps={num_steps}", f"trainer.default_local_dir='{run}'"]
    run.parent.mkdir(parents=True, exist_ok=True)
    with open(run.with_name(f"{run.name}.log"), "wb") as log:
        command = [sys.executable, str(ROOT / "train.py"), "--config-name", "quickstart_bandit", *settings]
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)


def watch(process: subprocess.Popen[bytes], run: Path, *, every: int) -> list[Look]:
    """A look at the process every so many steps, until it ends."""
    looks: list[Look] = []
    log = run / "metrics.jsonl"
    num_steps, position = 0, 0
    try:
        while process.poll() is None:
            time.sleep(0.2)
            if log.exists():
                with open(log, "rb") as file:
                    file.seek(position)
                    new = file.read()
                num_steps, position = num_steps + new.count(b"\n"), position + len(new)
            if num_steps >= (looks[-1].step + every if looks else 1):
                new_looks = look_at(process.pid, num_steps)
                looks += new_looks
                for look in new_looks if len(looks) % 10 == 1 else ():
                    print(f"step {look.step}: {look.memory_mib:.0f} MiB", flush=True)
    finally:
        process.kill()
    return looks


def look_at(pid: int, step: int) -> list[Look]:
    """One look; none when the process has just ended."""
    folder = Path(f"/proc/{pid}")
    try:
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        num_files = len(list((folder / "fd").iterdir()))
    except (FileNotFoundError, ProcessLookupError):
        return []
    if "VmRSS" not in status:  # it has ended and nobody has asked for its exit status yet
        return []
    memory = int(status["VmRSS"].split()[0]) / 1024
    return [Look(step=step, memory_mib=memory, num_files=num_files, num_threads=int(status["Threads"]))]


def report(looks: Sequence[Look], seconds: Sequence[float]) -> int:
    """The second fifth beside the last; 1 when something grew."""
    fifth, num_steps = max(1, len(looks) // 5), max(1, len(seconds) // 5)
    early, late = looks[fifth : 2 * fifth] or looks[-1:], looks[-fifth:]
    rows = {
        "memory, MiB": ([look.memory_mib for look in early], [look.memory_mib for look in late], ALLOWED_MIB),
        "open files": ([look.num_files for look in early], [look.num_files for look in late], 0),
        "threads": ([look.num_threads for look in early], [look.num_threads for look in late], 0),
        "ms a step": (
            [1000 * s for s in seconds[num_steps : 2 * num_steps] or seconds],
            [1000 * s for s in seconds[-num_steps:]],
            None,
        ),
    }
    print(f"\n{'median of':<14}{'second fifth':>14}{'last fifth':>12}")
    is_grown = False
    for name, (before, after, allowed) in rows.items():
        grown = allowed is not None and median(after) > median(before) + allowed
        is_grown |= grown
        print(f"{name:<14}{median(before):>14.1f}{median(after):>12.1f}{'   GREW' if grown else ''}")
    return int(is_grown)


if __name__ == "__main__":
    sys.exit(main())
