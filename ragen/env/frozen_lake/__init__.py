"""FrozenLake: the rules (env.py), the levels and their solver (lake.py), the tiles (picture.py).

One more size, slip or way to render is a tag in config/envs.yaml; a new option, a field of the config in env.py.
"""
