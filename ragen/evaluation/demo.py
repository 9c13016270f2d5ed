"""`ragen demo`: the embedded models play bandit, FrozenLake and Sokoban beside a random policy and the solver."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from ragen.config import load_config
from ragen.evaluation.command import run_evaluation
from ragen.evaluation.evaluate import success
from ragen.tracking.console import console, print_table
from ragen.tracking.rundir import RunDir

SMALL = (
    "model_path=tiny",
    "es_manager.val.group_size=1",
    "actor_rollout_ref.rollout.response_length=64",
    "actor_rollout_ref.rollout.max_model_len=1024",
    "actor_rollout_ref.rollout.val_kwargs.temperature=1",
)
GAMES = {
    "bandit": ("_1_bandit", ("es_manager.val.env_configs.tags=[Bandit]",)),
    "frozen_lake": ("quickstart", ()),
    "sokoban": ("_2_sokoban", ()),
}
"""Environment family -> config and its overrides."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="ragen demo", description=__doc__)
    parser.add_argument("--levels", type=int, default=256, help="validation levels of each environment (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("results/demo"), help="run directories go here (%(default)s)")
    args = parser.parse_args(argv)
    started = time.monotonic()
    rows = []
    for game, (config_name, overrides) in GAMES.items():
        levels = (
            f"es_manager.val.env_groups={args.levels}",
            f"es_manager.val.env_configs.n_groups=[{args.levels}]",
        )
        config = load_config(config_name, [*SMALL, *overrides, *levels])
        results = run_evaluation(config, RunDir(args.out / game), modes=("sampled", "greedy"), has_references=True)
        rows.append([game, *(f"{success(result.episodes)}" for result in results)])
    console.print()
    print_table(
        f"Success on {args.levels} validation levels, with 95 % intervals",
        ("environment", "model, sampled", "model, greedy", "random policy", "solver"),
        rows,
    )
    console.print(f"Played in {time.monotonic() - started:.0f} s. Read an episode: ragen show {args.out}/sokoban")
    return 0
