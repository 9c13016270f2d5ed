"""`ragen reproduce`: published claims, settled by commands.

Tested in tests/reproduce/test_command.py.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from ragen.config.arguments import num_seeds, positive
from ragen.errors import ConfigError
from ragen.reproduce.claim import BUDGETS, SEEDS
from ragen.reproduce.command import Options, list_claims, reproduce, write_page
from ragen.sweeps.driving.run import shell_line

OUT = Path("results/reproduce")


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="ragen reproduce",
        description="Settle published claims about agent training: run what is missing, and print the published "
        "number, ours with its interval, and the verdict. Started again, it resumes. Runs are shared between claims.",
        epilog="Budgets: " + "; ".join(f"{name}: {machine}" for name, machine in BUDGETS.items()) + ".",
        allow_abbrev=False,
    )
    seeds = ", ".join(f"{count} at {budget}" for budget, count in SEEDS.items())
    parser.add_argument(
        "words", nargs="*", metavar="CLAIM | key=value", help="C5 C6 ..., or all; overrides of every run"
    )
    parser.add_argument("--list", action="store_true", help="every claim, its budgets and what is known so far")
    parser.add_argument("--budget", choices=list(BUDGETS), default="minutes", help="how much is run (%(default)s)")
    parser.add_argument("--seeds", type=num_seeds, metavar="N", help=f"runs of every arm ({seeds})")
    parser.add_argument(
        "--slots", type=positive, default=os.cpu_count() or 1, metavar="N",
        help="runs at a time on the CPU, for embedded models (a core each: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--runs-per-gpu", type=positive, default=1, metavar="K", help="runs that share a GPU at a time (%(default)s)"
    )
    parser.add_argument(
        "--plan", action="store_true", dest="is_plan", help="print runs, steps, time and disk; start nothing"
    )
    parser.add_argument(
        "--report", action="store_true", dest="is_report", help="judge by the seeds that have ended; start nothing"
    )
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the runs (%(default)s)")
    parser.add_argument("--records", type=Path, help="folder of the results (OUT/records)")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write all results as a page, and the figures")
    options = vars(parser.parse_intermixed_args(argv))
    words, is_list, page = (options.pop(name) for name in ("words", "list", "page"))
    records = options["records"] or options["out"] / "records"
    if is_list:
        print(list_claims(records))
        return 0
    names = tuple(word for word in words if "=" not in word)
    if page:
        write_page(page, records)
    if names:
        pairs = (word.partition("=")[::2] for word in words if "=" in word)
        return reproduce(
            Options(
                **options | {"records": records},
                claims=names,
                changes=dict(pairs),
                command=shell_line(["ragen", "reproduce", *argv]),
            )
        )
    if not page:
        raise ConfigError("Which claim? ragen reproduce --list shows them; ragen reproduce C5 settles one.")
    return 0
