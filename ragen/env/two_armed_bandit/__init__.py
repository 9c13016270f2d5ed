"""The two-armed bandit of the base experiments.

One more variant is a tag in config/envs.yaml; a new option, a field of the config in env.py.
"""
