"""`ragen search`: the hyper-parameter search of the base experiments, one group of values at a time.

Tested in tests/legacy/test_search.py.
"""

from collections.abc import Sequence

from ragen.legacy.search import main as run


def main(argv: Sequence[str]) -> int:
    return run(argv, prog="ragen search")
