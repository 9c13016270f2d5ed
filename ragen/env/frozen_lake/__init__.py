"""FrozenLake: the rules (env.py), the levels and their solver (lake.py), the tiles (picture.py)."""
