"""Word problems with large numbers and a calculator: the environment (env.py), its problems (problems.py)."""
