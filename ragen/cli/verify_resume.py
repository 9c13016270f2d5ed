"""`ragen verify-resume`: prove for a configuration that a killed and resumed run equals the straight one.

Tested in tests/trainer/checkpoints/test_verify_resume.py.
"""

from collections.abc import Sequence
from pathlib import Path

from ragen.config import argument_parser
from ragen.config.arguments import not_negative, positive
from ragen.trainer.checkpoints.verify_resume import verify_resume


def main(argv: Sequence[str]) -> int:
    parser = argument_parser(
        "Prove that a run which is killed and resumed equals the run which was not: same metrics, same weights and "
        "optimizer states, bit for bit. Nothing outside temporary folders is written. Exit code 0: proven, 1: not."
    )
    parser.prog = "ragen verify-resume"
    parser.add_argument("--steps", type=positive, default=4, metavar="N", help="length of the run (%(default)s)")
    parser.add_argument("--kill-at", type=int, metavar="K", help="step after which it is killed (half of all)")
    parser.add_argument("--kills", type=positive, metavar="N", help="kill N times at random moments instead of once")
    parser.add_argument("--seed", type=not_negative, default=0, metavar="S", help="of the random moments (%(default)s)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep both run directories here")
    return verify_resume(**vars(parser.parse_args(argv)))
