"""Ranks: processes that train together.

team.py says which passes are this rank's and gathers what the ranks hold, sharding.py splits the weights of a model
among them (PyTorch FSDP2). ranks.py starts the processes through Ray and calls all of them at once, watch.py tells
which of them holds up the others.

To let ranks do something else, write an object with the methods they are to run, and subclass `RankCalls` with methods
of the same names (`on_all_ranks`), as workers/ray.py and sft/ray_finetune.py do.
"""
