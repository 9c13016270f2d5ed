"""`ragen reproduce`: published claims as commands, with seeds, intervals and a rule that was written before the runs.

A claim is a file of `claims`: the sentence, its source, the arms that decide it at each budget and a function from
what the runs left to a verdict. `plan` makes runs of arms, which the one driver of `ragen.sweeps` works off; a run is
named by its own configuration, so claims share runs. `records` keeps what came out, `page` and `figure` show it. One
more claim is one more file of `claims`.
"""
