"""Sokoban: the rules (env.py), the levels (room.py; of files xsb.py), their solver (solver.py), the tiles (picture.py).

One more size, number of boxes or way to render is a tag in config/envs.yaml; a new option, a field of the config in
env.py.
"""
