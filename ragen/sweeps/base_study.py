"""`ragen study`: supervised training, reinforcement learning and both, with thoughts and without, over several seeds.

Two runs for each environment, way of answering and seed, all from the embedded model: one learns by reinforcement
alone, the other from the solver's demonstrations first. The first and the last validation of the two are the four
arms of the study: start, RL, SFT and SFT + RL.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ragen.algorithms.statistics import Estimate, difference, over_seeds
from ragen.config.load import load_config
from ragen.config.seeds import SEED_GAP
from ragen.sft.config import SECTION
from ragen.sweeps.driver import drive
from ragen.sweeps.run import Run, shell_line
from ragen.sweeps.slots import Slot
from ragen.tracking.names import GREEDY_VALIDATION, VALIDATION
from ragen.tracking.outcomes import DONE
from ragen.tracking.rundir import read_records, write_atomic
from ragen.tracking.validation import success_by_tag

QUIET = (
    "trainer.logger=[]",
    "trainer.save_freq=-1",
    "trainer.save_episodes_every=0",
    "trainer.gradient_analysis_mode=False",
    "collapse_detection.compute_freq=0",
)
SFT = ("sft.epochs=3", "sft.optim.lr=1e-3", "sft.micro_batch_size=16", "sft.validate_merged=False")


@dataclass(frozen=True, kw_only=True, slots=True)
class Game:
    """One environment of the study."""

    config_name: str
    tag: str
    """Where success is measured."""
    num_steps: int
    """Training steps of reinforcement learning."""
    has_sft: bool = True


GAMES = {
    "frozen_lake": Game(config_name="quickstart", tag="FrozenLake", num_steps=100),
    "sokoban": Game(config_name="quickstart_sokoban", tag="CoordSokoban", num_steps=40),
    # Measured on names of arms that training never shows.
    "bandit": Game(config_name="quickstart_bandit", tag="BanditTest", num_steps=100, has_sft=False),
}
WAYS = {"think": "True", "no think": "False"}
Key = tuple[str, str, str]
"""Environment, way of answering, arm."""


class Rates(NamedTuple):
    """Success in one validation."""

    sampled: Estimate
    greedy: Estimate


def plan(out: Path, seeds: Sequence[int], overrides: Sequence[str]) -> dict[tuple[str, str, str, int], Run]:
    """(environment, way, kind, seed) -> run; kind is rl or sft."""
    runs = {}
    for name, game in GAMES.items():
        kinds = ("rl", "sft") if game.has_sft else ("rl",)
        for way, seed, kind in itertools.product(WAYS, seeds, kinds):
            label = f"{name}-{way.replace(' ', '_')}-{kind}-{seed}"
            shared = [f"agent_proxy.enable_think={WAYS[way]}", *overrides]
            runs[name, way, kind, seed] = Run(
                name=label,
                command=("bash", "-c", shell_command(game, kind, seed, out / label, shared)),
                log=out / f"{label}.log",
                run_dir=out / label / "run",
                total_steps=game.num_steps,
                seed=seed,
            )
    return runs


def shell_command(game: Game, kind: str, seed: int, folder: Path, shared: Sequence[str]) -> str:
    """The training, behind the supervised one where the kind is sft."""
    program = (sys.executable, "-m", "ragen.cli")
    train = [
        *(*program, "train", "--config-name", game.config_name, *QUIET),
        f"model_path={'tiny' if kind == 'rl' else folder / 'sft/merged_model'}",
        f"seed.train={SEED_GAP * seed}",
        f"seed.val={SEED_GAP * seed - 10_000}",
        f"trainer.total_training_steps={game.num_steps}",
        f"trainer.test_freq={game.num_steps}",
        f"trainer.default_local_dir={folder / 'run'}",
        *shared,
    ]
    if kind == "rl":
        return shell_line(train)
    teach = [*program, "sft", "--config-name", game.config_name, "trainer.logger=[]", *SFT]
    teach += [f"sft.output_dir={folder / 'sft'}", f"sft.seed={SEED_GAP * seed + 500_000}"]
    teach += [word for word in shared if not word.startswith("trainer.")]
    return f"{shell_line(teach)} && {shell_line(train)}"


def successes(run_dir: Path, tag: str) -> tuple[Rates, Rates]:
    """The first and the last validation."""
    rows = []
    for record in read_records(run_dir):
        sampled, greedy = (success_by_tag(record, rollout=each) for each in (VALIDATION, GREEDY_VALIDATION))
        if tag in sampled and tag in greedy:
            rows.append(Rates(sampled[tag].success, greedy[tag].success))
    return rows[0], rows[-1]


def arms(runs: dict[tuple[str, str, str, int], Run]) -> dict[Key, list[Rates]]:
    """(environment, way, arm) -> success of each seed."""
    found: dict[Key, list[Rates]] = {}
    for (name, way, kind, _), run in runs.items():
        before, after = ("start", "RL") if kind == "rl" else ("SFT", "SFT + RL")
        first, last = successes(run.run_dir, GAMES[name].tag)
        found.setdefault((name, way, before), []).append(first)
        found.setdefault((name, way, after), []).append(last)
    return found


def gain(better: Sequence[Rates], worse: Sequence[Rates]) -> Estimate:
    """Difference of the sampled success, seed by seed, with its interval over the seeds."""
    gaps = [difference(a.sampled, b.sampled) for a, b in zip(better, worse, strict=True)]
    return over_seeds(gaps, share_levels=False)


def report(found: dict[Key, list[Rates]], num_seeds: int) -> str:
    """The study as Markdown."""
    lines = [
        f"Success on validation levels, mean over {num_seeds} seeds with 95 % intervals (Student's t over the seeds, "
        "and at least the error of the validations).",
        "",
        "| environment | way | arm | sampled | greedy |",
        "|---|---|---|---|---|",
    ]
    for (name, way, arm), rates in found.items():
        # Every seed has validation levels of its own.
        sampled, greedy = (over_seeds(column, share_levels=False).as_share() for column in zip(*rates, strict=True))
        lines.append(f"| {GAMES[name].tag} | {way} | {arm} | {sampled:.3f} | {greedy:.3f} |")
    lines += ["", "| difference of sampled success | |", "|---|---|"]
    for name, game in GAMES.items():
        for way in WAYS if game.has_sft else ():
            lines.append(
                f"| {game.tag}, {way}: SFT - RL | {gain(found[name, way, 'SFT'], found[name, way, 'RL']):+.3f} |"
            )
        gap = gain(found[name, "think", "RL"], found[name, "no think", "RL"])
        lines.append(f"| {game.tag}, RL: think - no think | {gap:+.3f} |")
    return "\n".join(lines) + "\n"


def study(out: Path, overrides: Sequence[str], *, num_seeds: int, num_slots: int) -> int:
    """Run what has not been run, write and print the report; the exit code."""
    for game in GAMES.values():  # a mistake is reported once, not by every run
        load_config(game.config_name, [word for word in overrides if not word.startswith(SECTION)])
    runs = plan(out, range(1, num_seeds + 1), overrides)
    slots = [Slot(devices="", size=1, label="1xCPU") for _ in range(num_slots)]
    outcomes = drive(list(runs.values()), slots, title="study") or {}
    failed = [run for run in runs.values() if outcomes[run.name].status not in DONE]
    if failed:
        print(f"error: {len(failed)} of {len(runs)} runs failed, the first: {failed[0].log}", file=sys.stderr)
        return 1
    text = report(arms(runs), num_seeds)
    write_atomic(out / "report.md", text)
    print(text)
    print(f"Report: {out / 'report.md'}")
    return 0
