"""Guess the number: each guess is answered with "too low" or "too high" (env.py)."""
