"""Guess the number: each guess is answered with "too low" or "too high" (env.py)."""

from ragen.env.guess_number.env import GuessNumberConfig, GuessNumberEnv

__all__ = ["GuessNumberConfig", "GuessNumberEnv"]
