"""Generated games of TextWorld: playing them (env.py), making them and keeping them in the user's cache (games.py)."""

from ragen.env.textworld.env import TextWorldConfig, TextWorldEnv

__all__ = ["TextWorldConfig", "TextWorldEnv"]
