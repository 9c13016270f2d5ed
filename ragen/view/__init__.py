"""`ragen view`: runs as a live page in the browser, from run directories alone; strictly read-only, without torch.

folders.py, summary.py, series.py       which runs there are, one of them as a row, its metrics as columns
index.py, episodes.py                   what every episode was; lists, groups, one turn by turn
boards.py, tokens.py, settings.py       observations as boards, tokens as texts, the run's configuration
filters.py, gradients.py                what each rollout filter keeps of a step; gradient analyses
play.py, play_api.py                    levels that a person plays with the prompts of the model
model.py                                the model of --play, in a process of its own
sweeps.py, sweep_files.py               sweeps, studies and searches by value and seed; their records
live.py                                 events: which runs have changed
api.py, encoding.py                     the routes; answers as JSON
pages.py, security.py, server.py        the files of the page; who is answered; uvicorn: address, port, Ctrl-C
export.py, bundle.py                    runs in one file: what it holds; the page with all its files inside
page/                                   what the browser loads: plain ES modules, no build step
"""
