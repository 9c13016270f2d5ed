"""`trainer.seeds=N`: the plan, one real pair of runs, and what they say together."""

import pytest

from ragen.cli import main
from ragen.config import load_config
from ragen.config.seeds import SEED_GAP
from ragen.errors import NOTHING_LEARNED, ConfigError
from ragen.sweeps.driving.slots import Slot
from ragen.sweeps.seeds import plan_seeds
from ragen.tracking.rundir import read_metrics
from tests.trainer.test_agent_trainer import NOTHING_KEPT

CPU = Slot(devices="", size=1, label="1xCPU")
SMALL = [
    "trainer.total_training_steps=1",
    "trainer.logger=[]",
    "es_manager.train.env_groups=2",
    "es_manager.train.group_size=4",
    "es_manager.val.env_configs.n_groups=[4,4]",
    "es_manager.val.env_groups=8",
    "ppo_mini_batch_size=4",
    "collapse_detection.compute_freq=0",
]

SEED = load_config("quickstart_bandit").seed.train or 0


def plan(*overrides: str):
    return plan_seeds(load_config("quickstart_bandit", overrides), "quickstart_bandit", None, overrides, CPU)


def test_every_seed_is_a_plain_run_of_its_own_on_the_same_validation_levels():
    first, second, third = plan("trainer.seeds=3", "trainer.runs_per_gpu=2", "trainer.experiment_name='a b'")
    assert [run.name for run in (first, second, third)] == ["a b", "a b-seed2", "a b-seed3"]
    configs = [run.config for run in (first, second, third) if run.config]
    seeds = [config.seed.train for config in configs]
    assert seeds[0] == load_config("quickstart_bandit").seed.train
    assert [seed - seeds[0] for seed in seeds] == [0, SEED_GAP, 2 * SEED_GAP]
    assert len({config.seed.val for config in configs}) == 1
    assert {config.trainer.seeds for config in configs} == {1}, "a run of the list does not repeat itself"
    assert [str(run.run_dir) for run in (first, second)] == [
        config.trainer.default_local_dir for config in configs[:2]
    ] == ["checkpoints/ragen/a b", "checkpoints/ragen/a b-seed2"]  # fmt: skip


def test_seeds_that_nobody_fixed_cannot_be_paired():
    with pytest.raises(ConfigError, match="train is null"):
        plan("trainer.seeds=2", "seed.train=null")


def test_two_seeds_run_to_their_table_and_are_not_run_again(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    argv = ["train", "--config-name", "quickstart_bandit", "trainer.seeds=2", "trainer.experiment_name=x", *SMALL]
    assert main(argv) == 0
    text = capsys.readouterr().out
    assert "x, 2 seeds: 2 of 2 runs to do, 1 at a time" in text and "GB of checkpoints" in text
    assert all(f"| {row} | " in text for row in ("x | 10000", "x-seed2 | 2010000", "mean | 10000, 2010000"))
    assert "Student's t over 2 seeds and the validation levels they share" in text
    assert "ragen plot checkpoints/ragen/x checkpoints/ragen/x-seed2" in text
    first, second = (read_metrics(tmp_path / "checkpoints/ragen" / name) for name in ("x", "x-seed2"))
    assert first[0]["val-env/Bandit/success"] == second[0]["val-env/Bandit/success"], "they begin alike"
    assert first[-1]["actor/pg_loss"] != second[-1]["actor/pg_loss"], "and play levels of their own"
    assert main(argv) == 0
    assert "0 of 2 runs to do" in capsys.readouterr().out


def test_seeds_that_all_learned_nothing_end_with_the_exit_code_of_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    stop = "actor_rollout_ref.rollout.rollout_filter_empty_stop_steps=1"
    argv = ["train", "--config-name", "quickstart_bandit", "trainer.seeds=2", *SMALL, *NOTHING_KEPT, stop]
    assert main(argv) == NOTHING_LEARNED
    assert main(argv) == NOTHING_LEARNED, "also when they have ended before"


def test_a_supervised_training_does_not_repeat_itself(capsys):
    assert main(["sft", "--config-name", "quickstart", "trainer.seeds=2"]) == 1
    assert "trainer.seeds=2: only a training repeats itself" in capsys.readouterr().err
