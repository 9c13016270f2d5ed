"""Sokoban: the rules (env.py), the levels (room.py), their solver (solver.py), the tiles (picture.py)."""
