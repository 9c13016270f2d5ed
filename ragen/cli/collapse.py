"""`ragen collapse`: draw how a run's reasoning depends on the prompt.

Tested in tests/plotting/test_collapse.py.
"""

from collections.abc import Sequence

from ragen.plotting.collapse import main as draw


def main(argv: Sequence[str]) -> int:
    return draw(argv, prog="ragen collapse")
