"""`ragen study`: the plan, one real pair of runs, and the report."""

import re
from pathlib import Path

import pytest

from ragen.cli.study import main
from ragen.errors import ConfigError
from ragen.sweeps import base_study
from ragen.sweeps.base_study import GAMES, Game, arms, gain, plan, report
from ragen.tracking.rundir import RunDir
from tests.config.test_seeds import was_demonstrated

SMALL = [
    "es_manager.train.env_groups=4",
    "es_manager.train.group_size=4",
    "es_manager.val.env_groups=8",
    "ppo_mini_batch_size=4",
]


def test_the_plan_has_every_arm_and_no_shared_levels():
    runs = plan(Path("out"), [1, 2, 3], [])
    assert len(runs) == 2 * 2 * 3 * 2 + 2 * 3  # two environments with both kinds, the bandit with one
    assert len({run.run_dir for run in runs.values()}) == len(runs)
    shell = runs["sokoban", "no think", "sft", 2].command[2]
    teach, train = shell.split(" && ")
    assert "sft --config-name quickstart_sokoban" in teach and "sft.seed=4500000" in teach
    assert "model_path=out/sokoban-no_think-sft-2/sft/merged_model" in train
    assert "agent_proxy.enable_think=False" in teach and "agent_proxy.enable_think=False" in train
    assert "seed.train=4000000" in train and "seed.val=3990000" in train


def test_no_level_of_a_study_was_demonstrated_to_an_embedded_model():
    shells = " ".join(run.command[2] for run in plan(Path("out"), [1, 2, 3], []).values())
    found = re.findall(r"(seed\.train|seed\.val|sft\.seed)=(\d+)", shells)
    assert len({name for name, _ in found}) == 3
    assert not [pair for pair in found if was_demonstrated(range(int(pair[1]), int(pair[1]) + 10_000))]


def test_seeds_within_a_run_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"trainer\.seeds=2 would repeat every run within itself\. Use --seeds"):
        main(["--out", str(tmp_path / "out"), "trainer.seeds=2"])
    assert not (tmp_path / "out").exists()


def test_the_report_has_means_and_differences(tmp_path):
    runs = plan(tmp_path, [1, 2], [])
    for (name, way, kind, seed), run in runs.items():
        after = 0.6 + 0.1 * (kind == "sft") + 0.05 * (way == "think") + 0.02 * seed
        for step, rate in ((0, 0.4), (GAMES[name].num_steps, after)):
            tag = GAMES[name].tag
            metric = f"val-env/{tag}/success"
            sampled = {metric: rate, f"{metric}_low": rate - 0.03, f"{metric}_high": rate + 0.03}
            RunDir(run.run_dir).log(step, sampled | {f"val-env-greedy/{tag}/success": rate + 0.1})
        collapsed = (name, way, kind, seed) == ("frozen_lake", "no think", "rl", 2)
        RunDir(run.run_dir).write_status(state="early_stopped" if collapsed else "finished")
    found = arms(runs)
    rates = [(rates.sampled.mean, rates.greedy.mean) for rates in found["sokoban", "think", "SFT + RL"]]
    assert rates == [pytest.approx((0.77, 0.87)), pytest.approx((0.79, 0.89))]
    gap = gain(found["bandit", "think", "RL"], found["sokoban", "no think", "RL"])
    assert gap and gap.estimate.mean == pytest.approx(0.05)
    assert gain(found["frozen_lake", "no think", "SFT"], found["frozen_lake", "no think", "RL"]) is None
    text = report(found, 2)
    assert "| CoordSokoban | think | start | 0.400 [0.379, 0.421] | 0.500 [0.500, 0.500] | 0 of 2 |" in text
    assert "| FrozenLake | no think | RL | 0.620 | 0.720 | 1 of 2 |" in text, "the mean of the other run"
    assert "| FrozenLake, no think: SFT - RL | - | - | no verdict on the mean: runs collapsed |" in text
    # Sokoban with thoughts, seeds 1 and 2: 0.4 - 0.67 and 0.4 - 0.69.
    assert "| CoordSokoban, think: SFT - RL | -0.280 [-0.407, -0.153] | 0.068 | cannot tell: " in text
    assert "| BanditTest, RL: think - no think | +0.050 | - | cannot tell: the seeds do not differ |" in text


def test_a_small_study_runs_to_its_report_and_is_not_run_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        base_study, "GAMES", {"frozen_lake": Game(config_name="quickstart", tag="FrozenLake", num_steps=1)}
    )
    monkeypatch.setattr(
        base_study, "SFT", ("sft.epochs=1", "sft.train_size=16", "sft.val_size=8", "sft.validate_merged=False")
    )
    argv = ["--out", str(tmp_path / "study"), "--seeds", "1", *SMALL]
    assert main(argv) == 0
    text = (tmp_path / "study" / "report.md").read_text()
    assert text.count("| FrozenLake |") == 8
    written = (tmp_path / "study" / "frozen_lake-think-sft-1" / "run" / "metrics.jsonl").stat().st_mtime_ns
    capsys.readouterr()
    assert main(argv) == 0
    assert (tmp_path / "study" / "frozen_lake-think-sft-1" / "run" / "metrics.jsonl").stat().st_mtime_ns == written
    assert "Report:" in capsys.readouterr().out
