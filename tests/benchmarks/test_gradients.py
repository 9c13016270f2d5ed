"""benchmarks/gradients.py counts the passes and tokens of gradient analysis."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_tokens_are_read_once_for_all_parts_of_the_loss():
    arguments = ["--size", "0.5M", "--device", "cpu", "--layers", "1", "--groups", "6", "--group-size", "2"]
    script = str(ROOT / "benchmarks/gradients.py")
    run = subprocess.run(
        [sys.executable, script, *arguments, "--repeats", "1"], capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr
    found = dict(re.findall(r"(\w+ \w+) +([\d,]+)$", run.stdout, flags=re.MULTILINE))
    counts = {name: int(count.replace(",", "")) for name, count in found.items()}
    assert (counts["forward passes"], counts["backward passes"]) == (6, 18)
    assert counts["backward tokens"] == 3 * counts["forward tokens"]
    # Seconds come before the count of operators, which takes minutes where there are many.
    assert run.stdout.index("round 1: ") < run.stdout.index("operators")
