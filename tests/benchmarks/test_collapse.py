"""benchmarks/collapse.py prints tokens and seconds of cross scoring."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_fewer_tokens_are_read_than_the_pairs_have():
    arguments = ["--size", "0.5M", "--device", "cpu", "--groups", "2", "--samples", "3", "--repeats", "1"]
    script = str(ROOT / "benchmarks/collapse.py")
    run = subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    found = re.findall(r"([\d,]+) tokens in pairs, ([\d,]+) prompt by prompt, ([\d,]+) read in 1 passes", run.stdout)
    assert len(found) == 2
    for counts in found:
        in_pairs, one_each, read = (int(count.replace(",", "")) for count in counts)
        assert read <= one_each < in_pairs
