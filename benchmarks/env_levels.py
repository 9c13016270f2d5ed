"""Sokoban levels per second: ours beside gym-sokoban's, measured in the same run.

    python benchmarks/env_levels.py
    python benchmarks/env_levels.py --gym-sokoban /tmp/gym_sokoban/lib/python3.11/site-packages

gym-sokoban 0.0.6 belongs to the time of gym 0.21 and does not install beside current packages. Its level generator
needs NumPy only, so it is read as a file, from an installation without dependencies:

    python -m venv /tmp/gym_sokoban && /tmp/gym_sokoban/bin/pip install --no-deps gym-sokoban

Times are CPU seconds of this process and the two take turns, so that other work on the machine hardly changes the
ratio. Expect about 50 times as many levels per second as gym-sokoban in the first row and over 100 times in the second.
"""

import argparse
import importlib.util
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ragen.env.sokoban.room import generate_level

CASES = (  # (size, boxes, search depth, our levels per round, their levels per round)
    (6, 1, 300, 1000, 40),
    (8, 2, 300, 200, 5),
    (8, 2, 10, 200, 5),
)
NUM_ROUNDS = 5
THEIR_DEPTH = 300  # written into gym-sokoban; a smaller depth is forced by wrapping its search


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gym-sokoban", type=Path, help="site-packages folder that holds gym_sokoban")
    theirs = load_gym_sokoban(parser.parse_args().gym_sokoban)
    if theirs is None:
        print("gym-sokoban was not found: only our numbers follow. The docstring says how to get it.")

    print(f"{'room':<8}{'boxes':>6}{'depth':>7}{'ours/s':>10}{'gym-sokoban/s':>15}{'ratio':>8}")
    for size, num_boxes, depth, num_ours, num_theirs in CASES:
        makers = {"ours": (make_ours(size, num_boxes, depth), num_ours)}
        if theirs is not None:
            makers["theirs"] = (make_theirs(theirs, size, num_boxes, depth), num_theirs)
        rates = levels_per_second(makers)
        row = f"{f'{size}x{size}':<8}{num_boxes:>6}{depth:>7}{rates['ours']:>10.0f}"
        if theirs is not None:
            row += f"{rates['theirs']:>15.1f}{rates['ours'] / rates['theirs']:>8.0f}"
        print(row)


def levels_per_second(makers: dict[str, tuple[Callable[[int], bool], int]]) -> dict[str, float]:
    """Levels per CPU second of each maker; the makers take turns."""
    spent, made = dict.fromkeys(makers, 0.0), dict.fromkeys(makers, 0)
    for part in range(NUM_ROUNDS):
        for name, (make, count) in makers.items():
            start = time.process_time()
            made[name] += sum(make(seed) for seed in range(part * count, (part + 1) * count))
            spent[name] += time.process_time() - start
    return {name: made[name] / spent[name] for name in makers}


def make_ours(size: int, num_boxes: int, depth: int) -> Callable[[int], bool]:
    """A function that makes our level of a seed, which always succeeds."""
    return lambda seed: bool(generate_level(size, size, num_boxes=num_boxes, search_depth=depth, seed=seed))


def make_theirs(module: Any, size: int, num_boxes: int, depth: int) -> Callable[[int], bool]:
    """A function that makes gym-sokoban's level of a seed and says whether it succeeded."""
    search = module.original_search

    def shallow_search(*args: object, ttl: int, **kwargs: object) -> None:
        module.depth_first_search = search  # the recursion calls the original
        search(*args, ttl=min(ttl, depth + 1), **kwargs)  # it counts the state it starts from, too
        module.depth_first_search = shallow_search

    module.depth_first_search = search if depth == THEIR_DEPTH else shallow_search

    def make(seed: int) -> bool:
        random.seed(seed)
        np.random.seed(seed)
        try:
            module.generate_room(dim=(size, size), num_steps=int(1.7 * 2 * size), num_boxes=num_boxes)
        except (RuntimeError, RuntimeWarning):  # no level came out of its attempts
            return False
        return True

    return make


def load_gym_sokoban(site_packages: Path | None) -> Any:
    """gym-sokoban's level generator alone, without its package and what that would import."""
    if site_packages is None:
        spec = importlib.util.find_spec("gym_sokoban")
        if spec is None or spec.origin is None:
            return None
        site_packages = Path(spec.origin).parent.parent
    spec = importlib.util.spec_from_file_location("room_utils", site_packages / "gym_sokoban/envs/room_utils.py")
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.original_search = module.depth_first_search
    return module


if __name__ == "__main__":
    main()
