"""The Python interface: what `import ragen` offers, thin over the rooms that do the work. docs/python.md shows it.

config.py    load_config: a configuration by name, with overrides as words or as a dictionary
agent.py     Agent: a model that plays and is evaluated
trainer.py   Trainer: a training run as an iterator of steps, or stage by stage
runs.py      load_run: what a run directory holds, as flat records
listing.py   what there is to choose from, and where it comes from: `ragen list`

`import ragen` loads none of it: each name is imported when it is first asked for (ragen/__init__.py).
"""
