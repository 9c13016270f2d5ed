"""Try every task of a package in two processes, and write down which of them work and why the others do not.

    .venv-adapters/bin/python -m tools.adapters.survey reasoning_gym           writes ragen/env/reasoning_gym/tasks.json
    .venv-adapters/bin/python -m tools.adapters.survey reasoning_gym --check   compares, and writes nothing

The processes differ in the salt of Python's hash; what depends on it is no level that a seed can name.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from tools.adapters import reasoning_gym_tasks, textarena_games
from tools.adapters.trial import Trial

ROOT = Path(__file__).parents[2]
SURVEYS: dict[str, tuple[str, str, Callable[[], dict[str, Trial]]]] = {
    "reasoning_gym": ("reasoning-gym", "ragen/env/reasoning_gym/tasks.json", reasoning_gym_tasks.try_all),
    "textarena": ("textarena", "ragen/env/textarena/games.json", textarena_games.try_all),
}
"""Package -> its name for pip, the file, and what tries its tasks."""
SALTS = ("1", "2")


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.adapters.survey", description=__doc__.splitlines()[0])
    parser.add_argument("package", choices=SURVEYS)
    parser.add_argument("--check", action="store_true", help="compare with the file; exit status 1 where they differ")
    parser.add_argument("--trials", action="store_true", help=argparse.SUPPRESS)  # what each of the two processes does
    args = parser.parse_args(argv)
    distribution, file, try_all = SURVEYS[args.package]
    if args.trials:
        print("\n" + json.dumps({name: asdict(trial) for name, trial in try_all().items()}))
        return 0
    found = survey(args.package, distribution)
    text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    if args.check:
        is_same = (ROOT / file).read_text() == text
        print(f"{file} is what was found." if is_same else f"{file} differs from what was found:\n{text}")
        return 0 if is_same else 1
    (ROOT / file).write_text(text)
    print(f"{file}: {len(found['allowed'])} of {len(found['allowed']) + len(found['refused'])} work.")
    return 0


def survey(package: str, distribution: str) -> dict:
    """What the file holds."""
    from importlib.metadata import version

    children = [start_trials(package, salt) for salt in SALTS]
    first, second = (json.loads(child.communicate()[0].splitlines()[-1]) for child in children)
    assert first.keys() == second.keys()
    reasons = {name: reason(Trial(**first[name]), Trial(**second[name])) for name in sorted(first)}
    return {
        "package": distribution,
        "version": version(distribution),
        "allowed": [name for name, why in reasons.items() if not why],
        "refused": {name: why for name, why in reasons.items() if why},
    }


def start_trials(package: str, salt: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tools.adapters.survey", package, "--trials"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": salt},
    )


def reason(first: Trial, second: Trial) -> str:
    """Why a task is refused; empty where it is not."""
    if first.fault or second.fault:
        return first.fault or second.fault
    return "" if first.texts == second.texts else "the same seed gives another level in another process"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
