"""Attention functions that models are switched to, one file each: packed and cached.

switch.py registers a function by name and hands it the heads of a layer; masks.py says what a query may look at, and
caps scores. padded.py is what packed.py does where there is no kernel for it.

To add one, write a record of what a pass is about, a function of `Heads` and that record that returns
[batch, queries, head, dim], and `NAME = Attention("ragen_name", function)`. Within `NAME.serving(config, record)` the
models of that config call it. Compare it with one sequence at a time for every family of tests/engine/families.py.
"""
