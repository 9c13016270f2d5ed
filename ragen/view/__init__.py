"""`ragen view`: runs as a live page in the browser, from run directories alone; strictly read-only, without torch.

folders.py, summary.py, series.py       which runs there are, one of them as a row, its metrics as columns
live.py                                 events: which runs have changed
api.py, pages.py, security.py           the routes, the files of the page, who is answered
server.py                               uvicorn: address, port, Ctrl-C
page/                                   what the browser loads: plain ES modules, no build step
"""
