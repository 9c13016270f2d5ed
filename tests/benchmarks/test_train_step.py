"""benchmarks/train_step.py prints the tables it promises, for the embedded models and for random weights."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SMALL = ["--groups", "4", "--group-size", "2", "--micro-batch", "4", "--repeats", "1", "--threads", "1"]
SMALL_REAL = ["--groups", "1", "--group-size", "2", "--micro-batch", "2", "--repeats", "1", "--threads", "1"]


def run_benchmark(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "benchmarks/train_step.py"), *arguments, "--device", "cpu"],
        capture_output=True,
        text=True,
        timeout=300,
    )


def table(text: str, title: str) -> dict[str, list[float]]:
    """The rows below a title, by their first word; numbers without their per cent signs."""
    block = next(part for part in text.split("\n\n") if part.startswith(title))
    rows = [line.split() for line in block.splitlines()[2:]]
    return {name: [float(number.rstrip("%")) for number in numbers] for name, *numbers in rows}


def test_stages_of_both_algorithms_add_up_to_the_step_and_the_filter_keeps_what_it_says():
    run = run_benchmark("--env", "frozen_lake", "--shared", *SMALL)
    assert run.returncode == 0, run.stderr
    grpo, ppo = table(run.stdout, "grpo: "), table(run.stdout, "ppo: ")
    assert list(grpo) == ["gen", "old_log_prob", "ref", "adv", "update_actor", "step"]
    assert list(ppo) == ["gen", "old_log_prob", "ref", "values", "adv", "update_critic", "update_actor", "step"]
    for stages in (grpo, ppo):
        whole = stages.pop("step")
        assert 0 < sum(seconds for seconds, *_ in stages.values()) <= whole[0] + 0.01
    kept = table(run.stdout, "grpo by the share")
    assert [(name, row[0]) for name, row in kept.items()] == [("100%", 4), ("75%", 3), ("50%", 2), ("25%", 1)]
    tokens = [row[1] for row in kept.values()]
    assert tokens == sorted(tokens, reverse=True) and tokens[0] > tokens[-1] > 0
    shared = table(run.stdout, "grpo with common beginnings once")
    assert list(shared) == ["shared", "whole"] and all(seconds > 0 for row in shared.values() for seconds in row)
    assert "TRL is left out" in run.stdout


def test_random_weights_train_on_synthetic_episodes_without_a_rollout():
    run = run_benchmark("--shape", "0.5M", "--update-only", "--algorithms", "ppo", *SMALL)
    assert run.returncode == 0, run.stderr
    stages = table(run.stdout, "ppo: ")
    assert "gen" not in stages and stages["update_critic"][0] > 0 and stages["update_actor"][0] > 0
    found = re.search(r"8 episodes of (\d+) tokens, 500 of them sampled", run.stdout)
    assert found and 1300 < int(found[1]) < 1700


def test_a_rollout_is_needed_unless_the_episodes_are_synthetic():
    run = run_benchmark("--update-only")
    assert run.returncode == 2 and "--update-only needs --shape" in run.stderr


def test_replies_of_real_lengths_are_played_and_trained_on():
    run = run_benchmark("--shape", "0.5M", "--replies", "real", "--env", "sokoban", "--algorithms", "grpo", *SMALL_REAL)
    assert run.returncode == 0, run.stderr
    stages = table(run.stdout, "grpo: ")
    assert stages["gen"][0] > 0 and stages["update_actor"][0] > 0
    found = re.search(r"2 episodes of (\d+) tokens, (\d+) of them sampled", run.stdout)
    assert found and int(found[1]) > int(found[2]) != 500


def test_real_lengths_are_for_random_weights():
    run = run_benchmark("--replies", "real")
    assert run.returncode == 2 and "--replies real needs --shape" in run.stderr
