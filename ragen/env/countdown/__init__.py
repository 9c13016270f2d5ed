"""Countdown: reach a target with given numbers (env.py); how puzzles are drawn and solved (puzzle.py)."""
