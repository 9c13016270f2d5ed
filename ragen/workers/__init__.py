"""Models, optimizers and engine behind one protocol (base.py), which a trainer calls.

local.py has them in this process. rank.py is the same in one of several processes, and ray.py calls those.

To add a method, add it to the protocol, to `LocalWorkers`, and to `RayWorkers`, which calls it on all ranks.
"""
