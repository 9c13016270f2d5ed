"""RAGEN: train language-model agents with multi-turn reinforcement learning, and explain the training.

docs/architecture.md is the map: what lives in which package, who may import whom, and where to change or add things.
"""

import os

__version__ = "0.1.0"

# Threads that spin while they wait slow each other down badly when processes outnumber cores, and threads that sleep at
# once wake up too late for the next of many small operations: they spin for some microseconds, then sleep. OpenMP reads
# this when torch is imported, so it is set here, before anything can import it.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
