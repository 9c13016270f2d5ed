"""What the page shows, read off run directories.

folders.py, summary.py, series.py       which runs there are, one of them as a row, its metrics as columns
index.py, episodes.py                   what every episode was; lists, groups, one turn by turn
boards.py, tokens.py, settings.py       observations as boards, tokens as texts, the run's configuration
filters.py, gradients.py                what each rollout filter keeps of a step; gradient analyses
sweeps.py, sweep_files.py               sweeps, studies and searches by value and seed; their records
encoding.py                             answers as JSON
"""
