"""Sudoku: the rules (env.py), what an answer says (answer.py), how puzzles are drawn and solved (puzzle.py)."""
