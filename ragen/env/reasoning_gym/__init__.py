"""The generators of reasoning-gym (env.py): what was tried (tasks.json), what scorers may be given (guard.py)."""
