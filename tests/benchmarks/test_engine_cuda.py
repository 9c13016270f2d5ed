"""The row of benchmarks/engine_cuda.py that has the shape of a real rollout, on a CPU and in small."""

import re
import subprocess
import sys
from pathlib import Path

from ragen.models.resolve import resolve_model
from ragen.tracking.rundir import RunDir
from ragen.types import Episode, Status, Turn

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from parts.replies import RECORDED, drawn_length, lengths_of_run, recorded_lengths  # noqa: E402

SMALL = ["--rows", "real", "--device", "cpu", "--sizes", "0.5M", "--groups", "1", "--group-size", "2", "--repeats", "1"]


def run_benchmark(*arguments: str) -> subprocess.CompletedProcess[str]:
    script = str(ROOT / "benchmarks/engine_cuda.py")
    return subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, timeout=300)


def test_recorded_lengths_fill_the_rows_of_the_table_and_the_last_is_its_limit():
    assert recorded_lengths({4: 2, 8: 1, 9: 3}) == [2, 4, 8, 9, 9, 9]
    lengths, low = recorded_lengths(), 0
    for high, count in RECORDED.items():
        assert sum(low < length <= high for length in lengths) == count
        low = high
    assert len(lengths) == 634 and lengths.count(400) == 57


def test_a_reply_has_the_length_that_its_seed_draws():
    drawn = [drawn_length(recorded_lengths(), seed) for seed in range(2000)]
    assert drawn == [drawn_length(recorded_lengths(), seed) for seed in range(2000)]
    assert 0.4 < sum(20 < length <= 40 for length in drawn) / 2000 < 0.54


def test_lengths_can_be_those_of_a_run(tmp_path: Path):
    turns = [
        Turn(user="", prompt_ids=[1], response_ids=[2] * length, logprobs=[0.0] * length, text="", stop_reason="length")
        for length in (3, 5)
    ]
    episode = Episode(tag="t", env_type="t", group_id=0, member=0, seed=0, turns=turns, status=Status.OUT_OF_TURNS)
    RunDir(tmp_path).write_episodes("train_step_1", [episode])
    assert lengths_of_run(tmp_path) == [3, 5]


def test_the_row_says_what_a_real_rollout_does_for_random_weights_and_for_a_model():
    model = resolve_model("tiny", env_types=["sokoban"])
    run = run_benchmark(*SMALL, "--turns", "2", "--model", str(model))
    assert run.returncode == 0, run.stderr
    rows = [line for line in run.stdout.splitlines() if line.startswith("|")][2:]
    assert len(rows) == 2 and "as they come" in rows[0] and "drawn lengths" in rows[1]
    for row in rows:
        assert re.search(r"tokens of [2-4] replies, \d+ decode launches of \d+ \(median\), \d+ prefills of", row)
        assert "first rollout" in row


def test_other_rows_want_a_gpu():
    run = run_benchmark("--device", "cpu")
    assert run.returncode == 2 and "--device cpu is for --rows real" in run.stderr
