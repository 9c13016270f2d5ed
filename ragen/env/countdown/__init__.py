"""Countdown: reach a target with given numbers (env.py); how puzzles are drawn and solved (puzzle.py)."""

from ragen.env.countdown.env import CountdownConfig, CountdownEnv

__all__ = ["CountdownConfig", "CountdownEnv"]
