"""Every published command runs to its end with the embedded model, and leaves what it should."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from ragen.cli import main as ragen
from ragen.legacy.command import main
from ragen.tracking.rundir import read_episodes, read_metrics, read_status

ROOT = Path(__file__).parents[2]

SMALL_RL = [
    "model.base_model=tiny",
    "training.total_training_steps=1",
    "training.val_data_num=3",
    "training.max_response_length=48",
    "logging.mode=console",
    "optimization.actor_lr=1e-3",
]
SMALL_SFT = [
    "sft.training.base_model=tiny",
    "sft.training.epochs=1",
    "sft.training.logger=console",
    "sft.data_generation.train_size=20",
    "sft.data_generation.test_size=5",
    "training.val_data_num=4",
    "training.max_response_length=48",
]


def published(script: str) -> list[list[str]]:
    """The words of each command that calls a script, without redirections."""
    text = (ROOT / "tests" / "legacy" / "base_experiments.sh").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.startswith(f"bash {script} ")]
    return [shlex.split(re.split(r" (?:2>&1 \||>) ", line)[0])[2:] for line in lines]


def value(words: list[str], key: str) -> str:
    return next(word.partition("=")[2] for word in words if word.startswith(f"{key}="))


def case(words: list[str]):
    """A command as a test case; with the model replaced, a 3B one repeats its 0.5B twin."""
    key = "sft.training" if "rl_or_sft=sft" in words else "model"
    model, name = value(words, f"{key}.base_model"), value(words, f"{key}.experiment_name")
    return pytest.param(words, id=name, marks=[pytest.mark.slow] if "3B" in model else [])


COMMANDS = published("train.sh")
RL = [words for words in COMMANDS if "rl_or_sft=sft" not in words and "system.n_gpus=2" not in words]
SFT = [words for words in COMMANDS if "rl_or_sft=sft" in words]


def test_all_commands_are_here():
    assert (len(COMMANDS), len(RL), len(SFT)) == (18, 13, 4)


@pytest.mark.parametrize("words", [case(words) for words in RL])
def test_a_reinforcement_learning_command_runs(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*words, *SMALL_RL]) == 0
    run = tmp_path / "checkpoints" / "RAGEN" / value(words, "model.experiment_name")
    assert read_status(run)["state"] == "finished"
    assert (run / "global_step_1" / "actor" / "model.safetensors").exists()
    (record,) = read_metrics(run)
    levels, plays = (int(value(words, f"training.{key}")) for key in ("train_batch_size", "n_rollout"))
    assert record["train/batch_size"] == levels * plays
    assert record["train/num_mini_batches"] == 1
    assert record["actor/kl_coef"] == 0.001
    tag = {"two_armed_bandit": "TwoArmedBandit", "sokoban": "SimpleSokoban", "frozenlake": "FrozenLake"}[words[0]]
    assert record[f"train/{tag}/num_turns"] <= int(value(words, "training.max_turns"))
    assert f"val-env/{tag}/score" in record
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["agent_proxy"]["enable_think"] is ("training.no_think_rl=True" not in words)
    assert config["algorithm"]["adv_estimator"] == "brpo"


@pytest.mark.parametrize("words", [case(words) for words in SFT])
def test_a_supervised_command_runs(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*words, *SMALL_SFT]) == 0
    out = tmp_path / value(words, "sft.output_dir")
    assert {file.name for file in (tmp_path / "sft" / "data" / words[0]).iterdir()} == {"train.parquet", "test.parquet"}
    (checkpoint,) = (out / "lora_weights").glob("global_step_*")
    assert (checkpoint / "actor" / "adapter.safetensors").exists()
    assert {"model.safetensors", "config.json", "tokenizer.json", "validate.log"} <= {
        file.name for file in (out / "merged_model").iterdir()
    }
    assert "sft/val_loss" in (out / "train.log").read_text()
    assert read_status(out / "validation")["state"] == "finished"
    config = yaml.safe_load((out / "validation" / "config.yaml").read_text())
    assert config["actor_rollout_ref"]["model"]["path"].endswith("merged_model")


def test_two_gpus_are_translated(capsys):
    (words,) = [words for words in COMMANDS if "system.n_gpus=2" in words]
    assert main([*words, "--show"]) == 0
    out = capsys.readouterr().out
    assert "trainer.n_gpus_per_node=2" in out
    assert "system.CUDA_VISIBLE_DEVICES='\"'\"'0,1'\"'\"'" in out


def test_equal_names_of_two_models_do_not_resume_each_other(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["two_armed_bandit", "training.train_batch_size=4", "training.n_rollout=1", "training.ppo_batch_size=4"]
    assert main([*words, *SMALL_RL, "training.max_turns=1"]) == 0
    assert main([*words, *SMALL_RL, "training.max_turns=1", "model.base_model=tiny/sokoban"]) == 1
    assert "was trained with model_path=tiny/bandit, this run asks for tiny/sokoban" in capsys.readouterr().err


def test_a_checkpoint_is_evaluated_with_more_turns_than_it_was_trained_with(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["sokoban", "training.train_batch_size=2", "training.n_rollout=2", "training.ppo_batch_size=4"]
    assert main([*words, *SMALL_RL, "training.max_turns=2"]) == 0
    run = tmp_path / "checkpoints" / "RAGEN" / "ragen-main-exp"
    checkpoint = run / "global_step_1" / "actor"
    words = ["eval", str(checkpoint), "--config-dir", str(run), "--config-name", "config", "--out", "evaluation"]
    assert ragen([*words, "--max-turn", "25", "--max-actions", "25", "--mode", "sampled"]) == 0
    config = yaml.safe_load(Path("evaluation/config.yaml").read_text())
    assert config["actor_rollout_ref"]["model"]["path"] == str(checkpoint)
    random = list(read_episodes(Path("evaluation/episodes/random.jsonl")))
    assert 2 < max(len(episode.turns) for episode in random) <= 25
    assert {episode.tag for episode in random} == {"SimpleSokoban"}


def test_the_shell_script_finds_its_place_and_hands_on_the_exit_code(tmp_path):
    environment = os.environ | {"CONFIG_TRAINING__MAX_TURNS": "2"}
    command = ["bash", str(ROOT / "train.sh"), "frozenlake"]
    shown = subprocess.run([*command, "--show"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "agent_proxy.max_turn=2" in shown.stdout
    failed = subprocess.run([*command, "training.foo=1"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert failed.returncode == 1
    assert "training.foo: unknown key" in failed.stderr
