"""What a run leaves behind and shows while it runs: the run directory, its metrics, trackers and times. No torch.

A metric: log it under a path, give it a line in docs/metrics.md, and put its name into names.py once somebody reads it
back. A tracker: a class with `log`, `log_table` and `close`, one entry of `TRACKERS` in tracker.py and one in
ragen/config/trainer.py, and its extra in pyproject.toml; or, without a change here, a path in trainer.logger.
"""
