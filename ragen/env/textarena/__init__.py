"""The games of TextArena for one player (env.py): which were tried (games.json)."""
