"""Generated games of TextWorld: playing them (env.py), making them and keeping them in the user's cache (games.py)."""
