"""Where metrics and tables go beside the run directory, a file for each place; `TRACKERS` in tracker.py names them."""
