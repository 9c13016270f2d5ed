"""2048: the rules (env.py), sliding and merging tiles (board.py), the player of the reference line (player.py)."""

from ragen.env.game_2048.env import Game2048Config, Game2048Env

__all__ = ["Game2048Config", "Game2048Env"]
