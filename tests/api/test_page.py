"""Every block of docs/python.md runs, in its order, in an empty folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"```python(?: title=\"([\w.]+)\")?\n(.*?)```", re.DOTALL)


def test_the_page_runs(tmp_path):
    program = ""
    for title, code in BLOCK.findall((ROOT / "docs" / "python.md").read_text()):
        if title:
            (tmp_path / title).write_text(code)
        else:
            program += code
    (tmp_path / "page.py").write_text(program)
    env = os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    runs = tmp_path / "checkpoints" / "ragen"
    assert sorted(path.name for path in runs.iterdir()) == ["mine", "page", "stages"]
    assert (runs / "mine" / "trackers" / "lines.txt").read_text().splitlines()[-1].startswith("1 ")
