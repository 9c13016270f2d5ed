"""Many training runs: a grid gives a list of Run, a Scheduler works it off, a report shows what came out."""
