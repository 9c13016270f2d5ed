"""The base experiments as they were typed: `bash train.sh` and `bash scripts/hyperparam_search.sh`.

`settings` reads a command line, `table` says what became of each key, `translate` makes overrides of it, `search` runs
the grids. One more legacy key is a row of `table.TABLE`; where its value is not handed on as it is, also a line of
`translate`. docs/legacy.md shows the table.
"""
