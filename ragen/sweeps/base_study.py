"""`ragen study`: supervised training, reinforcement learning and both, with thoughts and without, over several seeds.

Two runs for each environment, way of answering and seed, all from the embedded model: one learns by reinforcement
alone, the other from the solver's demonstrations first. The first and the last validation of the two are the four
arms of the study: start, RL, SFT and SFT + RL.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ragen.algorithms.comparison import Gap, holm, paired_gap
from ragen.algorithms.statistics import Estimate, over_seeds, unknown_interval
from ragen.config.load import load_config
from ragen.config.seeds import SEED_GAP
from ragen.sft.config import SECTION
from ragen.studies.comparison import p_text, verdict
from ragen.studies.outcomes import DONE
from ragen.sweeps.driving.driver import check_is_one, drive
from ragen.sweeps.driving.run import PROGRAM, Run, shell_line
from ragen.sweeps.driving.slots import Slot
from ragen.tracking.console import markdown_table
from ragen.tracking.names import GREEDY_VALIDATION, VALIDATION
from ragen.tracking.rundir import read_records, read_status, write_atomic
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
    train = [
        *(*PROGRAM, "train", "--config-name", game.config_name, *QUIET),
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
    teach = [*PROGRAM, "sft", "--config-name", game.config_name, "trainer.logger=[]", *SFT]
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


def arms(runs: dict[tuple[str, str, str, int], Run]) -> dict[Key, list[Rates | None]]:
    """(environment, way, arm) -> success of each seed; None for a run that collapsed."""
    found: dict[Key, list[Rates | None]] = {}
    for (name, way, kind, _), run in runs.items():
        before, after = ("start", "RL") if kind == "rl" else ("SFT", "SFT + RL")
        first, last = successes(run.run_dir, GAMES[name].tag)
        is_collapsed = read_status(run.run_dir)["state"] == "early_stopped"
        found.setdefault((name, way, before), []).append(first)
        found.setdefault((name, way, after), []).append(None if is_collapsed else last)
    return found


def gain(better: Sequence[Rates | None], worse: Sequence[Rates | None]) -> Gap | None:
    """Difference of the sampled success by pairs of seeds; None where a run collapsed, since the others flatter it."""
    if None in better or None in worse:
        return None
    return paired_gap([a.sampled.mean - b.sampled.mean for a, b in zip(better, worse, strict=True) if a and b])


def arm_row(rates: Sequence[Rates | None]) -> list[str]:
    """Sampled and greedy success, and how many runs collapsed. Every seed has validation levels of its own."""
    left = [rate for rate in rates if rate is not None]
    if not left:
        return ["-", "-", f"{len(rates)} of {len(rates)}"]
    means = [over_seeds(column, share_levels=False).as_share() for column in zip(*left, strict=True)]
    if len(left) < len(rates):
        means = [unknown_interval(mean.mean) for mean in means]
    return [*(f"{mean:.3f}" for mean in means), f"{len(rates) - len(left)} of {len(rates)}"]


def gains(found: dict[Key, list[Rates | None]]) -> dict[str, Gap | None]:
    """The differences that the study is about."""
    pairs: dict[str, tuple[Key, Key]] = {}
    for name, game in GAMES.items():
        for way in WAYS if game.has_sft else ():
            pairs[f"{game.tag}, {way}: SFT - RL"] = (name, way, "SFT"), (name, way, "RL")
        pairs[f"{game.tag}, RL: think - no think"] = (name, "think", "RL"), (name, "no think", "RL")
    return {title: gain(found[one], found[other]) for title, (one, other) in pairs.items()}


def report(found: dict[Key, list[Rates | None]], num_seeds: int) -> str:
    """The study as Markdown."""
    arms_table = markdown_table(
        ("environment", "way", "arm", "sampled", "greedy", "collapsed"),
        [[GAMES[name].tag, way, arm, *arm_row(rates)] for (name, way, arm), rates in found.items()],
    )
    gaps = gains(found)
    corrected = holm([math.nan if gap is None else gap.p for gap in gaps.values()])
    rows = []
    for (title, gap), p in zip(gaps.items(), corrected, strict=True):
        if gap is None:
            rows.append([title, "-", "-", "no verdict on the mean: runs collapsed"])
        else:
            rows.append([title, f"{gap.estimate:+.3f}", p_text(p), verdict(gap, p)])
    return "\n".join(
        [
            f"Success on validation levels, mean over {num_seeds} seeds with 95 % intervals (Student's t over the "
            "seeds, and at least the error of the validations); of arms with collapsed runs the mean of the others.",
            "",
            arms_table,
            "",
            markdown_table(("difference of sampled success", "by pairs of seeds", "p (Holm)", "verdict"), rows),
            "",
        ]
    )


def study(out: Path, overrides: Sequence[str], *, num_seeds: int, num_slots: int) -> int:
    """Run what has not been run, write and print the report; the exit code."""
    for game in GAMES.values():  # a mistake is reported once, not by every run
        check_is_one(load_config(game.config_name, [word for word in overrides if not word.startswith(SECTION)]))
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
