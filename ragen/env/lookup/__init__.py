"""Questions over several steps of a small invented world, and a search tool: env.py, world.py, ranking.py."""
