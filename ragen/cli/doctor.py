"""`ragen doctor`: what is installed, what is missing, and what it would give.

Tested in tests/test_doctor.py.
"""

import argparse
import json
from collections.abc import Sequence

from ragen.doctor import examine, to_text


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="ragen doctor",
        description="Print what this installation has, what it lacks, and what each missing piece would give. "
        "The exit status is 1 where the core cannot run; missing extras are no fault.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    args = parser.parse_args(argv)
    report = examine()
    print(json.dumps(report.to_json(), indent=2) if args.json else to_text(report))
    return 0 if report.is_healthy else 1
