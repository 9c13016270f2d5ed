"""`ragen demo`: the embedded models play three environments; then one of them is trained, and its curve drawn.

Tested in tests/test_readme.py.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Sequence
from pathlib import Path

from ragen.config import Config, load_config
from ragen.errors import install_command
from ragen.evaluation.command import run_evaluation
from ragen.llm_agent.metrics import success
from ragen.tracking.console import console, print_table

QUICKSTARTS = {"bandit": "quickstart_bandit", "frozen_lake": "quickstart", "sokoban": "quickstart_sokoban"}
"""Environment -> its training configuration for a laptop."""


def demo(*, env: str, levels: int, out: Path, overrides: Sequence[str], play_only: bool) -> None:
    """Print the table of all three games; unless it is `play_only`, train on `env`."""
    play(out, levels)
    if not play_only:
        run, name = out / f"train_{env}", QUICKSTARTS[env]
        fixed = [f"trainer.default_local_dir={run}", "trainer.resume_mode=disable"]
        train(load_config(name, [*with_levels(name, levels), *fixed, *overrides]), run)


def with_levels(config_name: str, levels: int) -> list[str]:
    """Overrides that validate every tag of a configuration on so many levels."""
    num_tags = len(load_config(config_name).es_manager.val.env_configs.tags)
    return [
        f"es_manager.val.env_groups={num_tags * levels}",
        f"es_manager.val.env_configs.n_groups={[levels] * num_tags}",
    ]


def play(out: Path, levels: int) -> None:
    """Sampled and greedy success of each embedded model, beside a random policy and the solver."""
    started = time.monotonic()
    rows = []
    for game, config_name in QUICKSTARTS.items():
        config = load_config(config_name, with_levels(config_name, levels))
        results = run_evaluation(config, out / game, modes=("sampled", "greedy"), has_references=True)
        for tag in config.es_manager.val.env_configs.tags:
            rates = [success([e for e in result.episodes if e.tag == tag]) for result in results]
            rows.append([tag, *(f"{rate}" for rate in rates)])
    console.print()
    print_table(
        f"Success on {levels} validation levels, with 95 % intervals",
        ("environment", "model, sampled", "model, greedy", "random policy", "solver"),
        rows,
    )
    console.print(f"Played in {time.monotonic() - started:.0f} s. Read an episode: ragen show {out}/sokoban")


def train(config: Config, run: Path) -> None:
    """Train, draw the learning curve and say what it shows; without matplotlib there is no picture."""
    from ragen.plotting.learning_curve import plot_learning_curve, read_run
    from ragen.trainer.build import build_trainer

    tags = config.es_manager.val.env_configs.tags
    steps = config.trainer.total_training_steps
    console.print(f"\nTraining {config.model_path} on {', '.join(tags)} for {steps} steps. Watch it: ragen view {run}")
    can_draw = importlib.util.find_spec("matplotlib") is not None
    if not can_draw:
        console.print(f"The learning curve will not be drawn: it needs matplotlib. Run: {install_command('plot')}")
    started = time.monotonic()
    trainer = build_trainer(config)
    assert trainer is not None
    trainer.fit()
    figure = run / "learning_curve.png"
    curves = plot_learning_curve([run], figure) if can_draw else read_run(run)
    console.print(f"Trained in {time.monotonic() - started:.0f} s.")
    for tag, found in curves.items():
        for curve in found:
            first, last = curve.estimates[0], curve.estimates[-1]
            verb = "rose" if last.low > first.high else "fell" if last.high < first.low else "went"
            console.print(f"{tag}, {curve.name}: success {verb} from {first:.2f} to {last:.2f}.")
    if can_draw:
        console.print(f"Learning curve: {figure}")
