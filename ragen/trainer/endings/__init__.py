"""How a run ends and what it says: `signals`, `early_stop`, `trouble` with a rollout, and the report (`ending`).

A new early stop is a rule of early_stop.py with a sentence and a remedy in ending.py.
"""
