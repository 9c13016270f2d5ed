"""Sudoku puzzles a second, what random games of 2048 reach, and how much of a file of Sokoban levels the solver solves.

    python benchmarks/puzzles.py
    python benchmarks/puzzles.py --xsb unfiltered/train/000.txt medium/train/000.txt hard/000.txt

Boxoban's levels: https://github.com/google-deepmind/boxoban-levels. Times are CPU seconds of this process, one core.
docs/environments.md quotes these numbers.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from ragen.algorithms.statistics import proportion_interval
from ragen.env.game_2048.board import ACTIONS, largest
from ragen.env.game_2048.env import Game2048Config, Game2048Env, draw_start
from ragen.env.sokoban.solver import MAX_STATES, search
from ragen.env.sokoban.xsb import read_levels
from ragen.env.sudoku.puzzle import draw_puzzle
from ragen.seeding import Rng

SUDOKUS = ((4, 8), (9, 40), (9, 26))
"""Size and givens."""
TARGETS = (64, 128, 256, 512)
NUM_STARTS = 500
CYCLE = ("Down", "Left", "Up", "Left")
"""What a policy that never looks at the board can do: of the cycles of four moves that were tried, among the best."""


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--puzzles", type=int, default=100, help="Sudokus of each kind (%(default)s)")
    parser.add_argument("--games", type=int, default=500, help="random games of 2048 (%(default)s)")
    parser.add_argument("--xsb", type=Path, nargs="*", default=[], metavar="FILE", help="files of Sokoban levels")
    parser.add_argument("--levels", type=int, default=30, help="the first so many of each file (%(default)s)")
    args = parser.parse_args(argv)
    for size, givens in SUDOKUS:
        seconds = time_sudokus(size, givens, args.puzzles)
        print(f"Sudoku {size}x{size}, {givens} givens: {1000 * seconds:.1f} ms a puzzle, mean of {args.puzzles}")
    tiles = [play_randomly(seed) for seed in range(args.games)]
    for target in TARGETS:
        share = proportion_interval(sum(tile >= target for tile in tiles), len(tiles))
        print(f"2048 4x4, random moves: {share:.3f} of {args.games} games make {target}")
    made = proportion_interval(sum(play_cycle(seed) for seed in range(args.games)), args.games)
    print(f"2048 3x3, {', '.join(CYCLE)} over and over: {made:.3f} of {args.games} games make 32 in 20 actions")
    print(f"2048 3x3, six first moves: {num_starts(NUM_STARTS)} different boards from {NUM_STARTS} seeds")
    for file in args.xsb:
        print(solve_file(file, args.levels))


def time_sudokus(size: int, givens: int, count: int) -> float:
    """CPU seconds of a puzzle."""
    start = time.process_time()
    for seed in range(count):
        draw_puzzle(size, num_givens=givens, seed=seed)
    return (time.process_time() - start) / count


def play_randomly(seed: int) -> int:
    """The largest tile of a game in which every action is drawn from all four, until nothing moves."""
    env, rng = Game2048Env(Game2048Config(target=131_072, max_steps=1_000_000)), Rng(seed, "random play")
    env.reset(seed)
    while not env.is_done:
        env.step(rng.choice(list(ACTIONS)))
    return largest(env.board)


def play_cycle(seed: int) -> bool:
    """Whether CYCLE solves the level of config/game_2048.yaml."""
    env = Game2048Env(Game2048Config(size=3, target=32, start_moves=6, max_steps=20))
    ids = {name: action for action, name in ACTIONS.items()}
    env.reset(seed)
    for number in range(20):
        if not env.is_done:
            env.step(ids[CYCLE[number % len(CYCLE)]])
    return env.is_solved


def num_starts(num_seeds: int) -> int:
    """Different first boards of 3x3 games after six moves."""
    return len({draw_start(3, target=32, start_moves=6, seed=seed) for seed in range(num_seeds)})


def solve_file(file: Path, count: int) -> str:
    """How many of the first levels the solver solves within its states, and how long it and the file take."""
    start = time.process_time()
    levels = read_levels(str(file), "all")
    reading = time.process_time() - start
    start = time.process_time()
    found = [search(level).actions is not None for level in levels[:count]]
    seconds = (time.process_time() - start) / len(found)
    return (
        f"{file}: {sum(found)} of the first {len(found)} levels solved in {MAX_STATES:,} states, "
        f"{seconds:.2f} s a level; {len(levels)} levels read in {reading:.2f} s"
    )


if __name__ == "__main__":
    main()
