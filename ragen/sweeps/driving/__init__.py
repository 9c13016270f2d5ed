"""The one driver of runs: `driver` works off a list of `Run`. `scheduler` keeps the queue, `backend` and `ray_backend`
start processes (`child`) on `slots` of the machine, `results` holds how they ended, `view` shows them meanwhile.
"""
