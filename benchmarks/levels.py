"""Levels that teach: fresh levels, a pool, levels by pass rate and refilled batches, on boards of mixed sizes.

    python benchmarks/levels.py runs/levels                     # runs what is missing, then the table
    python benchmarks/levels.py runs/levels --task lakes        # one of the two tasks
    python benchmarks/levels.py runs/levels --report            # the table of the runs that are done

Each arm is trained with the same seeds as `fresh`, by an ordinary `ragen train` in a process of its own, and validated
once, at its end. Success is counted on validation levels whose content no arm of the same seed has trained on, nor the
embedded model before. Differences to `fresh` are paired by seed, with Student's 95 % interval over the seeds.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from ragen.algorithms.statistics import mean_interval
from ragen.config.seeds import SEED_GAP
from ragen.models.resolve import resolve_model
from ragen.tracking import names
from ragen.tracking.episodes import read_episodes
from ragen.tracking.rundir import read_metrics, read_status
from ragen.trainer.held_out import PlayedLevels, levels_behind
from ragen.types import Episode

ROOT = Path(__file__).parents[1]
FIRST_SEED = 10_000
TRAIN = "es_manager.train"
POOL = f"{TRAIN}.level_pool.size=32"

ARMS: dict[str, tuple[str, ...]] = {
    "fresh": (),
    "pool": (f"{TRAIN}.levels=pool", POOL),
    "pass_rate": (f"{TRAIN}.levels=pass_rate", POOL),
    "fresh, refilled": (f"{TRAIN}.refill=3",),
}
"""What is compared -> what it changes; the first one is what the others are compared with."""

LARGE_LAKE = (
    "+custom_envs.LargeLake={env_type:frozen_lake,max_actions_per_traj:10,max_tokens:100,"
    "env_instruction:${custom_envs.FrozenLake.env_instruction},env_config:{size:6,success_rate:1.0}}"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """Boards of two sizes."""

    config_name: str
    env_type: str
    steps: int
    overrides: tuple[str, ...]


TASKS = {
    "lakes": Task(
        config_name="quickstart",
        env_type="frozen_lake",
        steps=40,
        overrides=(LARGE_LAKE, f"{TRAIN}.env_configs.tags=[FrozenLake,LargeLake]"),
    ),
    "sokoban": Task(
        config_name="quickstart_sokoban",
        env_type="sokoban",
        steps=25,
        overrides=(f"{TRAIN}.env_configs.tags=[SimpleSokoban,LargerSokoban]",),
    ),
}

SHARED = (
    "system.CUDA_VISIBLE_DEVICES=''",
    f"{TRAIN}.env_groups=8",
    f"{TRAIN}.group_size=8",
    f"{TRAIN}.env_configs.n_groups=[4,4]",
    "es_manager.val.env_groups=256",
    "es_manager.val.env_configs.n_groups=[128,128]",
    "ppo_mini_batch_size=32",
    "trainer.val_before_train=False",
    "trainer.val_greedy=False",
    "trainer.preflight=False",
    "trainer.test_freq=1000",
    "trainer.save_freq=0",
    "trainer.logger=[]",
    "trainer.gradient_analysis_mode=False",
    "collapse_detection.compute_freq=0",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One arm with one seed, and what became of it."""

    arm: str
    seed: int
    path: Path

    @property
    def is_done(self) -> bool:
        return (self.path / "status.json").is_file() and read_status(self.path)["state"] == "finished"

    def episodes(self, kind: str) -> list[Episode]:
        files = sorted((self.path / "episodes").glob(f"{kind}_step_*.jsonl.gz"))
        return [episode for file in files for episode in read_episodes(file)]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--task", choices=TASKS, action="append", help="default: all")
    parser.add_argument("--arm", choices=ARMS, action="append", help="runs to start; default: all")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="of each run; default: the task's own")
    parser.add_argument("--report", action="store_true", help="start no run")
    args = parser.parse_args(argv)
    for name in args.task or TASKS:
        runs = [
            Run(arm=arm, seed=seed, path=args.folder / name / f"{arm.replace(', ', '_')}-{seed}")
            for seed in range(1, args.seeds + 1)
            for arm in ARMS
        ]
        for run in [] if args.report else runs:
            if not run.is_done and run.arm in (args.arm or ARMS):
                train(TASKS[name], run, args.steps or TASKS[name].steps)
        print(report(name, runs), flush=True)
    return 0


def train(task: Task, run: Run, steps: int) -> None:
    changes = [
        *SHARED,
        *task.overrides,
        *ARMS[run.arm],
        f"seed.train={FIRST_SEED + (run.seed - 1) * SEED_GAP}",
        f"trainer.total_training_steps={steps}",
        f"trainer.default_local_dir={run.path}",
    ]
    command = [sys.executable, "-m", "ragen.cli", "train", "--config-name", task.config_name, *changes]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


def report(name: str, runs: Sequence[Run]) -> str:
    """A Markdown table: every arm on the seeds of which it and the first arm are done."""
    done, first = [run for run in runs if run.is_done], next(iter(ARMS))
    played = {seed: levels_of(name, [run for run in done if run.seed == seed]) for seed in {run.seed for run in done}}
    trained = {run: run.episodes("train") for run in done}
    unseen = {run: [episode for episode in run.episodes("val") if episode not in played[run.seed]] for run in done}
    lines = [f"{name}:", "", "| arm | tag | seeds | success | minus fresh | in training | groups kept | episodes |"]
    lines += ["|---|---|---|---|---|---|---|---|"]
    for arm in ARMS:
        mine = {run.seed: run for run in done if run.arm == arm}
        pairs = [(mine[run.seed], run) for run in done if run.arm == first and run.seed in mine]
        for tag in [*sorted({episode.tag for one, _ in pairs for episode in unseen[one]}), "mean"] if pairs else []:
            found = fmean(success_of(unseen[one], tag) for one, _ in pairs)
            gaps = [success_of(unseen[one], tag) - success_of(unseen[other], tag) for one, other in pairs]
            gap = f"{mean_interval(gaps, range(len(gaps))):+.3f}" if arm != first else ""
            learned = fmean(success_of(trained[one], tag) for one, _ in pairs)
            kept = fmean(fmean(row[names.KEPT_COUNT] for row in rows_of(one)) for one, _ in pairs)
            counts = f"{kept:.1f} | {fmean(len(trained[one]) for one, _ in pairs):.0f}" if tag == "mean" else " | "
            lines.append(f"| {arm} | {tag} | {len(pairs)} | {found:.3f} | {gap} | {learned:.3f} | {counts} |")
    return "\n".join([*lines, ""])


def rows_of(run: Run) -> list[dict[str, float]]:
    return [row for row in read_metrics(run.path) if names.KEPT_COUNT in row]


def levels_of(name: str, runs: Sequence[Run]) -> PlayedLevels:
    """What the embedded model and any of these runs trained on."""
    played = levels_behind(resolve_model("tiny", env_types=[TASKS[name].env_type]))
    for run in runs:
        played.add(episode.level for episode in run.episodes("train"))
    return played


def success_of(episodes: Sequence[Episode], tag: str) -> float:
    """Of a tag, or the mean over the tags."""
    if tag == "mean":
        return fmean(success_of(episodes, each) for each in sorted({episode.tag for episode in episodes}))
    return fmean(episode.is_success for episode in episodes if episode.tag == tag)


if __name__ == "__main__":
    sys.exit(main())
