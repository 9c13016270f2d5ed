"""Writes how a run ended when its process could not: Ray's own code ends a process that lost its node, on the spot.

A small process watches the run's: when that is gone without a message and status.json still says `running`, it writes
`failed` there and prints it. `kill -9` looks the same from outside and is treated alike.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Self

import ragen
from ragen.tracking.run_card import CARD, end_card, write_card
from ragen.tracking.rundir import RunDir, read_status

CLEAN_END = b"clean end"
REASON = (
    "the process ended without a word: it was killed, or Ray ended it because its node (raylet) was gone. The same "
    "command resumes from the newest checkpoint"
)


class CrashWatch:
    """Watches over a run directory while it is entered."""

    def __init__(self, run_dir: Path) -> None:
        root = str(Path(ragen.__file__).parents[1])
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ragen.tracking.crash_watch", str(run_dir.absolute())],
            stdin=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,  # Ctrl-C and batch systems mean the run
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(CLEAN_END)


def main(run_dir: Path) -> None:
    if sys.stdin.buffer.read() == CLEAN_END:
        return
    status = read_status(run_dir)
    if status["state"] == "running":
        RunDir(run_dir).write_status("failed", REASON, step=status["step"], exit_code=1)
        print(f"Failed at step {status['step']}: {REASON}.\n  run folder: {run_dir}", file=sys.stderr, flush=True)
        if (run_dir / CARD).is_file():
            write_card(lambda: end_card(run_dir))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
