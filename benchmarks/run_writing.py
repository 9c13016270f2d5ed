"""What writing a run costs beside training it.

    python benchmarks/run_writing.py checkpoints/ragen/first ...

It writes the last training rollout of each run, and its last metrics, once more into a folder of its own, and prints
the work in seconds of one core beside the seconds of a step of that run: the median of those without validation. Of the
work it names the part that advantages make, which only `ragen view` reads. Training rollouts are written in a thread
beside the update; how long the steps of the run waited for it all the same is their `timing_s/write_episodes`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from ragen.tracking.advisories.evidence import newest
from ragen.tracking.episodes import read_episodes
from ragen.tracking.names import VALIDATION, by_tag, seconds
from ragen.tracking.rundir import RunDir, read_metrics
from ragen.types import Episode

REPEATS = 20


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="run")
    for run in parser.parse_args(argv).runs:
        print(report(run))


def report(run: Path) -> str:
    rows = [row for row in read_metrics(run) if row["step"] > 0 and not by_tag(row, VALIDATION, "success")]
    file = newest(run, "train", rows[-1]["step"])
    if file is None:
        raise SystemExit(f"{run} kept no episodes of training (trainer.save_episodes_every).")
    episodes = list(read_episodes(file))
    bare = [without_advantages(episode) for episode in episodes]
    tokens = sum(len(turn.response_ids) for episode in episodes for turn in episode.turns)
    step, waited = (median(row.get(seconds(name), 0.0) for row in rows) for name in ("step", "write_episodes"))
    with tempfile.TemporaryDirectory(dir=run.parent) as folder:
        copy = RunDir(Path(folder))
        taken = [cost(lambda these=these: copy.write_episodes("train_step_1", these)) for these in (episodes, bare)]
        logged = cost(lambda: copy.log(1, {name: value for name, value in rows[-1].items() if name != "step"}))
    lines = [
        f"{run}: {len(episodes)} episodes, {tokens} sampled tokens",
        f"  a step                     {step:9.4f} s",
        f"  writing its episodes       {taken[0]:9.4f} s  {taken[0] / step:6.2%}, beside the update",
        f"    of that, advantages      {taken[0] - taken[1]:9.4f} s  {(taken[0] - taken[1]) / step:6.2%}",
        f"  waiting for that           {waited:9.4f} s  {waited / step:6.2%}",
        f"  writing its metrics        {logged:9.4f} s  {logged / step:6.2%}",
    ]
    return "\n".join(lines)


def without_advantages(episode: Episode) -> Episode:
    return replace(episode, turns=[replace(turn, advantages=[]) for turn in episode.turns])


def cost(write: Callable[[], object]) -> float:
    """Median seconds of one core that a call takes; other programs do not count."""
    taken = []
    for _ in range(REPEATS):
        started = time.process_time()
        write()
        taken.append(time.process_time() - started)
    return median(taken)


if __name__ == "__main__":
    main()
