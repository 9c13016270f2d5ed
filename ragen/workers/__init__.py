"""Models, optimizers and engine, called by a trainer in the same way wherever they are (base.py).

local.py has them in this process. rank.py is the same in one of several processes, and ray.py calls those.

To add a method, add it to `LocalWorkers`, and to `RayWorkers`, which calls it on all ranks.
"""
