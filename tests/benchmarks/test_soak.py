"""The soak run tells growth from breathing, and sees a real run from outside."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from soak import Look, look_at, main, report


def looks(memory_per_look: float, *, files_per_look: int = 0) -> list[Look]:
    return [
        Look(step=i, memory_mib=400 + memory_per_look * i, num_files=5 + files_per_look * i, num_threads=3)
        for i in range(100)
    ]


def test_a_steady_run_passes_and_growth_of_memory_or_files_fails(capsys):
    assert report(looks(0.1), [0.1] * 100) == 0
    assert "GREW" not in capsys.readouterr().out
    assert report(looks(1.0), [0.1] * 100) == 1
    assert report(looks(0.0, files_per_look=1), [0.1] * 100) == 1


def test_the_time_of_a_step_is_shown_and_not_judged(capsys):
    assert report(looks(0.0), [0.1] * 50 + [9.0] * 50) == 0
    assert "9000.0" in capsys.readouterr().out


def test_a_process_is_seen_from_outside():
    (look,) = look_at(os.getpid(), 7)
    assert look.step == 7 and look.memory_mib > 1 and look.num_threads >= 1
    assert look_at(2**22 + 1, 7) == []


@pytest.mark.slow
def test_a_short_soak_of_a_real_run_passes(capsys):
    assert main(["--steps", "150"]) == 0
    assert "ms a step" in capsys.readouterr().out
