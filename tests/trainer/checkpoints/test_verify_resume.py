"""`ragen verify-resume`: what it finds, and the proof itself."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from ragen.cli import main
from ragen.tracking.rundir import read_status
from ragen.trainer.checkpoints.verify_resume import compare
from tests.trainer.runs import BANDIT, LAKE, REPOSITORY, SMALL, Run, train

GRPO = "algorithm.adv_estimator=grpo"


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    return train(tmp_path_factory.mktemp("run"), GRPO)


@pytest.fixture
def other(run, tmp_path) -> Run:
    return Run(shutil.copytree(run.path, tmp_path / "other"))


def change_line(path, number: int, **changes) -> None:
    lines = path.read_text().splitlines()
    lines[number] = json.dumps(json.loads(lines[number]) | changes)
    path.write_text("\n".join(lines) + "\n")


def test_equal_runs_are_equal_whatever_the_clock_says(run, other):
    change_line(other.path / "metrics.jsonl", 1, **{"timing_s/step": 99.0, "perf/throughput": 1.0})
    found = compare(run.path, other.path)
    assert found.difference is None
    assert "of 3 steps" in found.compared and "tensors of the last checkpoint" in found.compared


def test_the_first_metric_that_differs_is_named(run, other):
    change_line(other.path / "metrics.jsonl", 2, **{"actor/pg_loss": 7.0})
    difference = compare(run.path, other.path).difference
    assert difference is not None
    assert difference.startswith("step 2, metric actor/pg_loss: ") and "7.0 with it" in difference


def test_a_metric_that_only_one_run_has_is_named_and_nan_equals_nan(tmp_path, run, other):
    again = Run(shutil.copytree(run.path, tmp_path / "again"))
    for one in (again, other):
        change_line(one.path / "metrics.jsonl", 1, strange=float("nan"))
    assert compare(again.path, other.path).difference is None
    change_line(other.path / "metrics.jsonl", 1, new=1.0)
    assert compare(again.path, other.path).difference == "step 1, metric new: None without the kill, 1.0 with it."


def test_steps_that_are_missing_are_named(run, other):
    path = other.path / "metrics.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    assert compare(run.path, other.path).difference == "steps [0, 1, 2] were logged without the kill, [0, 1] with it."


def test_a_tensor_that_differs_in_its_last_bit_is_named(run, other):
    path = other.path / "global_step_2" / "actor" / "optimizer.safetensors"
    tensors = load_file(path)
    name = sorted(tensors)[0]
    tensors[name].view(-1)[0] += 1e-12
    save_file(tensors, path)
    difference = compare(run.path, other.path).difference
    assert difference is not None and difference.startswith(f"actor/optimizer.safetensors: {name}: the largest ")


@pytest.mark.parametrize("steps", [["--steps", "2", "--kill-at", "2"], ["--kill-at", "0"], ["--steps", "1"]])
def test_a_kill_must_leave_something_to_do(steps, capsys):
    assert main(["verify-resume", *steps]) == 1
    assert "--kill-at is" in capsys.readouterr().err


def test_help_says_what_is_proven(capsys):
    with pytest.raises(SystemExit):
        main(["verify-resume", "--help"])
    assert "bit for bit" in " ".join(capsys.readouterr().out.split())


def prove(*options: str, threads: int = 1, exit_code: int = 0) -> str:
    """What the command says, in a process of its own: it forks."""
    command = [sys.executable, "-m", "ragen.cli", "verify-resume", *SMALL, *options]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
    assert done.returncode == exit_code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_a_real_kill_is_survived_with_any_number_of_threads(tmp_path, threads):
    keep = ["--keep", str(tmp_path / "both")]
    out = prove(*LAKE, "--steps", "3", "--kill-at", "1", *keep, threads=threads)
    assert "2/3 the same run, killed after step 1" in out and "PROVEN" in out
    assert (tmp_path / "both" / "resumed" / "global_step_3").is_dir()


def test_kills_at_random_moments_change_nothing():
    said = prove(*BANDIT, GRPO, "--steps", "2", "--kills", "3", "--seed", "3")
    assert "times SIGKILL, " in said and "are equal, bit for bit (base, 2 steps, 3 kills)" in said


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("changes", [[], [GRPO], ["lora.rank=4"]], ids=["ppo", "grpo", "lora"])
def test_two_hundred_kills_change_nothing(changes):
    kills = "200" if not changes else "30"
    assert "PROVEN: in each of " in prove(*BANDIT, *changes, "--steps", "2", "--kills", kills, "--seed", "1")


def test_a_run_that_cannot_train_shows_its_own_words():
    short = "actor_rollout_ref.rollout.max_model_len=60"
    assert "exceeds max_model_len=60" in prove(*BANDIT, short, exit_code=1)


def test_an_interrupt_leaves_no_run_behind(tmp_path):
    run = tmp_path / "both" / "straight"
    command = [sys.executable, "-m", "ragen.cli", "verify-resume", *SMALL, *BANDIT, GRPO, "--steps", "5000"]
    endless = ["trainer.early_stop.variance_window=0", "actor_rollout_ref.rollout.rollout_filter_empty_stop_steps=0"]
    command += [*endless, "--keep", str(run.parent)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as parent:
        while not (run / "metrics.jsonl").exists():
            assert parent.poll() is None
            time.sleep(0.05)
        [child] = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        parent.send_signal(signal.SIGINT)  # to the command alone, not to the process group as a terminal does
        _, errors = parent.communicate(timeout=60)
    assert (parent.returncode, errors.splitlines()[-1]) == (130, "Interrupted.")
    assert not Path(f"/proc/{child}").exists()
    assert read_status(run)["state"] == "running", "it was ended, it did not come to its end"
