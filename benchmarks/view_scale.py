"""ragen view on large folders: a run of 1,000 steps x 128 episodes, and 200 runs.

    python benchmarks/view_scale.py                    # as large as that: about 2 GB of JSON lines, 0.8 GB on disk
    python benchmarks/view_scale.py --scale 0.1        # a tenth of the steps

It makes the folders below --folder (kept there, made once), starts the real command on them and prints how long the
answers take, how long the first index does, and how much memory the server takes at most.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

from ragen.tracking.episodes import episode_lines, pack_member
from ragen.tracking.rundir import RunDir, write_atomic
from ragen.types import Episode, Status, Turn

STEPS, EPISODES, RUNS, GROUP_SIZE = 1000, 128, 200, 16
TURNS, TOKENS = 5, 60
"""Of an episode, and of a reply: a line then has about 14 KB."""
ENDS = ((Status.SOLVED, 1.0), (Status.FAILED, 0.0))
METRICS = 250
"""Numbers of a step."""
REPEATS = 20


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "ragen-view-scale")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the steps of the large run (%(default)s)")
    args = parser.parse_args(argv)
    steps = max(1, int(STEPS * args.scale))
    large, many = args.folder / f"large_{steps}", args.folder / "many"
    make_once(large, lambda: make_large(large / "run", steps))
    make_once(many, lambda: make_many(many))
    with tempfile.TemporaryDirectory() as cache:
        with server(many, Path(cache)) as (address, pid):
            for when in ("first list:", "list again:"):
                before, wall = work(pid), timed(f"{address}api/runs")
                print(f"{RUNS} runs, {when:<17} {wall:6.2f} s, {work(pid) - before:.2f} s of one core")
            print(f"memory of the server:        {peak_memory(pid):6.0f} MB")
        size = sum(path.stat().st_size for path in large.rglob("*") if path.is_file())
        print(f"\none run of {steps} steps x {EPISODES} episodes, {size / 1e9:.2f} GB on disk")
        run = "api/runs/0%2Frun"
        with server(large, Path(cache)) as (address, pid):
            print(f"first index:                 {first_index(f'{address}{run}/episodes'):6.2f} s")
        with server(large, Path(cache)) as (address, pid):
            print(f"opened again, the run:       {timed(f'{address}{run}'):6.2f} s")
            print(f"  its metrics:               {timed(f'{address}{run}/series'):6.2f} s")
            print(f"  a page of its episodes:    {timed(f'{address}{run}/episodes?sort=-reward'):6.2f} s")
            print(f"  an episode, median:        {1000 * episode_time(f'{address}{run}/episode', steps):6.0f} ms")
            print(f"  the filter of a step:      {timed(f'{address}{run}/filter?step={steps}'):6.2f} s")
            print(f"memory of the server:        {peak_memory(pid):6.0f} MB")


def make_once(folder: Path, make: Any) -> None:
    mark = folder / ".made"
    if not mark.exists():
        print(f"making {folder} ...", flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        make()
        mark.touch()


def make_large(folder: Path, steps: int) -> None:
    rng, run = random.Random(0), RunDir(folder)
    run.write_config("model_path: tiny\ntrainer: {total_training_steps: %d}" % steps)  # noqa: UP031
    episodes = [make_episode(rng, number) for number in range(EPISODES)]
    packed = [
        [pack_member(line) for line in episode_lines(ended(episode, *how) for how in ENDS)] for episode in episodes
    ]
    for step in range(1, steps + 1):  # every step draws anew which episodes are solved; the texts are the same
        members = b"".join(rng.choice(both) for both in packed)
        write_atomic(folder / "episodes" / f"train_step_{step}.jsonl.gz", members)
        run.log(step, metrics_of(rng, step))
    run.write_status("finished", step=steps)


def ended(episode: Episode, status: Status, reward: float) -> Episode:
    return replace(episode, status=status, turns=[*episode.turns[:-1], replace(episode.turns[-1], reward=reward)])


def make_episode(rng: random.Random, number: int) -> Episode:
    turns = [
        Turn(
            user="State:\n" + "\n".join("_" * 8 for _ in range(8)),
            observation="\n".join("_" * 8 for _ in range(8)),
            prompt_ids=[rng.randrange(50_000) for _ in range(60)],
            response_ids=[rng.randrange(250) for _ in range(TOKENS)],
            logprobs=[-rng.random() for _ in range(TOKENS)],
            entropies=[round(rng.random(), 4) for _ in range(TOKENS)],
            text="<think>" + "the goal is up 2, right 1. " * 12 + "</think><answer>Up</answer>",
            stop_reason="stop",
            executed=["Up"],
        )
        for _ in range(TURNS)
    ]
    group, member = divmod(number, GROUP_SIZE)
    return Episode(
        tag="FrozenLake", env_type="frozen_lake", group_id=group, member=member, seed=group, system="Play.", turns=turns
    )


def metrics_of(rng: random.Random, step: int) -> dict[str, float]:
    row = {f"train/FrozenLake/metric_{number}": rng.random() for number in range(METRICS)}
    row |= {"train/FrozenLake/success": rng.random(), "timing_s/step": 10.0}
    return row | ({"val-env/FrozenLake/success": rng.random()} if step % 10 == 0 else {})


def make_many(folder: Path) -> None:
    """Runs of 200 steps with a whole configuration."""
    from ragen.config import load_config
    from ragen.config.show import to_yaml

    rng, config = random.Random(0), to_yaml(load_config("quickstart"))
    for number in range(RUNS):
        run = RunDir(folder / f"study_{number % 10}" / f"run_{number}")
        run.write_config(config)
        lines = [json.dumps({"step": step, **metrics_of(rng, step)}) + "\n" for step in range(STEPS // 5)]
        (run.path / "metrics.jsonl").write_text("".join(lines))
        run.write_status("finished", step=len(lines) - 1)


@contextmanager
def server(folder: Path, cache: Path) -> Iterator[tuple[str, int]]:
    """The command on a free port: its address and process id."""
    environment = os.environ | {"XDG_CACHE_HOME": str(cache), "COLUMNS": "300"}
    command = [sys.executable, "-m", "ragen.cli", "view", str(folder), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found, "the server has not started"
        yield found[0], process.pid
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate()


def get(address: str) -> Any:
    with urlopen(address) as answer:
        return json.load(answer)


def timed(address: str) -> float:
    started = time.perf_counter()
    with urlopen(address) as answer:
        answer.read()
    return time.perf_counter() - started


def first_index(address: str) -> float:
    """Until all files are in the table, as a page asks for them."""
    started = time.perf_counter()
    while (found := get(address)["indexing"])["done"] < found["of"]:
        pass
    return time.perf_counter() - started


def episode_time(address: str, steps: int) -> float:
    rng = random.Random(1)
    queries = [
        {"file": f"train_step_{rng.randint(1, steps)}", "index": rng.randrange(EPISODES)} for _ in range(REPEATS)
    ]
    return median(timed(f"{address}?{urlencode(query)}") for query in queries)


def work(pid: int) -> float:
    """Seconds of one core that the process has taken; other programs do not count."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_memory(pid: int) -> float:
    """The most that the process has taken, in MB."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1000 if found else float("nan")


if __name__ == "__main__":
    main()
