"""The numbers of puzzles that the documentation quotes come from a command that runs."""

from benchmarks import puzzles
from ragen.env.sokoban.xsb import OWN_LEVELS


def test_every_kind_of_puzzle_is_measured(capsys):
    file = OWN_LEVELS / "mixed.xsb"
    puzzles.main(["--puzzles", "2", "--games", "3", "--xsb", str(file), "--levels", "4"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Sudoku 4x4, 8 givens: ") and lines[2].startswith("Sudoku 9x9, 26 givens: ")
    assert "of 3 games make 64" in lines[3]
    assert lines[-1].startswith(f"{file}: 4 of the first 4 levels solved in 100,000 states, ")


def test_a_random_game_ends_and_is_the_same_again():
    tile = puzzles.play_randomly(0)
    assert tile >= 16 and tile & (tile - 1) == 0 and puzzles.play_randomly(0) == tile


def test_six_moves_make_most_seeds_different():
    assert puzzles.num_starts(100) > 85


def test_a_cycle_of_moves_wins_more_often_than_chance():
    assert sum(puzzles.play_cycle(seed) for seed in range(100)) > 40  # random moves: about 20
