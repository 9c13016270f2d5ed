"""`ragen view`: runs as a live page in the browser, from run directories alone; strictly read-only, without torch.

reading/                                what the page shows: runs, metrics, episodes, filters, gradients, sweeps
playing/                                levels that a person plays with the prompts of the model, or lets a model play
live.py                                 events: which runs have changed
api.py                                  the routes
pages.py, security.py, server.py        the files of the page; who is answered; uvicorn: address, port, Ctrl-C
export.py, bundle.py                    runs in one file: what it holds; the page with all its files inside
page/                                   what the browser loads: plain ES modules, no build step
"""
