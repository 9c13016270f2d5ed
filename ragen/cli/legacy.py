"""`ragen legacy ENV key=value ...`: the commands of the first release, as `bash train.sh` of the repository takes them.

Tested in tests/legacy/test_base_experiments.py.
"""

from collections.abc import Sequence

from ragen.legacy.__main__ import main as run


def main(argv: Sequence[str]) -> int:
    return run(argv, prog="ragen legacy")
