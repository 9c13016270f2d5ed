"""Checkpoints: seconds that the training loop loses to a save, and seconds until it is on the disk.

    python benchmarks/checkpoint.py --shape 0.5B --algorithm ppo --device cuda
    python benchmarks/checkpoint.py --shape 3B --algorithm grpo --device cuda --saves 2

Random weights in the shapes of Qwen2.5; moments as after an update. `waiting`: the loop waits for the whole checkpoint.
`beside`: it waits for the copy, after the memory has been reserved in a thread for --lead seconds, as much as the first
step of a run takes. Each save is on the disk before the next begins. Files go to --folder and are removed.
"""

from __future__ import annotations

import ragen  # isort: skip  # noqa: F401  (before torch: it makes OpenMP's waiting threads sleep)

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
from parts.trainer import SHAPES, random_workers
from train_step import ALGORITHMS

from ragen.config import load_config
from ragen.trainer.checkpoints.checkpointer import Checkpointer, StepOutcome
from ragen.trainer.held_out import PlayedLevels
from ragen.trainer.starting.memory import GIB
from ragen.workers.local import LocalWorkers


def fill_moments(workers: LocalWorkers) -> None:
    """The state of the optimizers as an update leaves it."""
    for learner in workers.learners.values():
        adam = learner.optimizer.adam
        for master in learner.optimizer.masters.values():
            moments = {name: torch.rand_like(master) for name in ("exp_avg", "exp_avg_sq")}
            adam.state[master] = {"step": torch.ones((), device=master.device), **moments}


def measure(checkpoints: Checkpointer, num_saves: int, first: int) -> list[tuple[float, float]]:
    """Seconds lost and seconds of writing, for each save."""
    rows = []
    for step in range(first, first + num_saves):
        checkpoints.workers.synchronize()
        began = time.perf_counter()
        checkpoints.save(checkpoints.point_of(StepOutcome(step=step, metrics={}, is_complete=True)))
        lost = time.perf_counter() - began
        checkpoints.wait()
        rows.append((lost, checkpoints.take_seconds() or 0.0))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="0.5B")
    parser.add_argument("--algorithm", choices=ALGORITHMS, default="ppo")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--saves", type=int, default=3)
    parser.add_argument("--lead", type=float, default=5.0, help="seconds between the start and the first save")
    parser.add_argument("--folder", help="where checkpoints go; default: the folder of temporary files")
    args = parser.parse_args()
    saves = ["trainer.save_freq=1", "trainer.total_training_steps=1000"]
    config = load_config("quickstart", [*ALGORITHMS[args.algorithm], *saves, "seed.train=0"])
    workers = random_workers(config, SHAPES[args.shape].size, args.device)
    fill_moments(workers)
    print(f"{args.shape} {args.algorithm} on {args.device}: a copy takes {workers.snapshot_bytes() / GIB:.1f} GiB")
    print(f"{'':<10}{'save':>5}{'lost (s)':>10}{'written (s)':>13}", flush=True)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        trainer = replace(config.trainer, default_local_dir=folder, max_actor_ckpt_to_keep=1, max_critic_ckpt_to_keep=1)
        checkpoints = Checkpointer(
            trainer, workers, facts={}, parts={}, played=PlayedLevels(), start_step=0, describe=lambda point: ""
        )
        for name, first in (("waiting", 1), ("beside", 1 + args.saves)):
            if name == "beside":
                checkpoints.prepare(last_step=trainer.total_training_steps)
                time.sleep(args.lead)
            for number, (lost, written) in enumerate(measure(checkpoints, args.saves, first), start=1):
                print(f"{name:<10}{number:>5}{lost:>10.2f}{written:>13.2f}", flush=True)
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        print(f"{size / GIB:.1f} GiB on the disk; {workers.copies.num_unpinned / GIB:.1f} GiB could not be pinned")
    workers.close()


if __name__ == "__main__":
    main()
