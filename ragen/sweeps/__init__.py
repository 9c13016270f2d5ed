"""Many runs: what is planned (`plan`, `base_study`, `legacy.search`) is a list of `Run`, which `driving` works off;
`report` and `figure` show what came out. One more sweep is a row of `experiments.SWEEPS` and one of
`cli.sweep.EXPERIMENTS`; any other list of runs calls `driving.driver.drive`.
"""
