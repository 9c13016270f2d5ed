"""The games of TextArena for one player (env.py): which were tried (games.json)."""

from ragen.env.textarena.env import TextArenaConfig, TextArenaEnv

__all__ = ["TextArenaConfig", "TextArenaEnv"]
