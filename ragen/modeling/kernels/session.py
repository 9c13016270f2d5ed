"""The state of a session of the graph engine, as kernels read it: a row of int64, HEADER numbers and then its pages.

A page of the cache holds PAGE tokens of one session in all layers: [layer, key or value, kv head, PAGE, head dim].
Kernels find pages by their address in memory, which the state lists, so a captured graph stays valid when the cache
grows or is freed and made anew.

Tested in tests/engine/test_graph_engine_interpreted.py.
"""

from __future__ import annotations

import triton.language as tl

PAGE = 64
HEADER = 8
SEED, POSITION, COUNT, TOKEN, TEMPERATURE = range(5)
"""Columns of a session's state: key of the noise; cached tokens; tokens of the reply so far; the last of them; bits
of the float64 temperature."""

SEED_COLUMN, POSITION_COLUMN, COUNT_COLUMN = tl.constexpr(SEED), tl.constexpr(POSITION), tl.constexpr(COUNT)
TOKEN_COLUMN, TEMPERATURE_COLUMN = tl.constexpr(TOKEN), tl.constexpr(TEMPERATURE)
TABLE_COLUMN = tl.constexpr(HEADER)
LOG2E = 1.4426950408889634
LOG2E_FACTOR = tl.constexpr(LOG2E)
