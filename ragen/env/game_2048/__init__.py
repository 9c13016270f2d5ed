"""2048: the rules (env.py), sliding and merging tiles (board.py), the player of the reference line (player.py)."""
