"""Every published command runs to its end with the embedded model, and leaves what it should."""

import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest
import yaml

from ragen.cli import main as ragen
from ragen.legacy.__main__ import main
from ragen.tracking.episodes import read_episodes
from ragen.tracking.rundir import read_metrics, read_status

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


def lines(script: str) -> list[tuple[str, str]]:
    """Each command that calls a script, and where its output goes."""
    text = (ROOT / "tests" / "legacy" / "base_experiments.sh").read_text().replace("\\\n", " ")
    found = []
    for line in text.splitlines():
        if line.startswith(f"bash {script} "):
            command, *output = re.split(r"(?=2>&1 \||> )", line, maxsplit=1)
            found.append((command, "".join(output)))
    return found


def published(script: str) -> list[list[str]]:
    """The words of each command that calls a script, without redirections."""
    return [shlex.split(command)[2:] for command, _ in lines(script)]


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


def test_two_gpus_are_two_workers(tmp_path, monkeypatch, capsys):
    """On a machine without GPUs they are processes on the CPU."""
    pytest.importorskip("ray")
    monkeypatch.chdir(tmp_path)
    (words,) = [words for words in COMMANDS if "system.n_gpus=2" in words]
    assert main([*words, "--show"]) == 0
    out = capsys.readouterr().out
    assert "trainer.n_gpus_per_node=2" in out
    assert "system.CUDA_VISIBLE_DEVICES='\"'\"'0,1'\"'\"'" in out
    before = signal.getsignal(signal.SIGTERM)
    assert main([*words, *SMALL_RL]) == 0
    assert signal.getsignal(signal.SIGTERM) == before, "Ray's handler goes with Ray"
    assert re.search(r"Workers: 2 on cpu, \S+ \(\d+, \d+\)", capsys.readouterr().out)
    run = tmp_path / "checkpoints" / "RAGEN" / "sokoban_7B_instruct_ragen_main"
    assert read_status(run)["state"] == "finished"
    assert (run / "global_step_1" / "actor" / "model.safetensors").exists()
    (record,) = read_metrics(run)
    assert (record["train/batch_size"], record["train/num_mini_batches"]) == (32, 1)
    assert record["actor/grad_norm"] > 0
    assert "val-env/SimpleSokoban/score" in record
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["actor_rollout_ref"]["actor"]["ppo_micro_batch_size_per_gpu"] == 2, "4 over both"


@pytest.mark.slow
def test_a_supervised_command_runs_on_two_gpus(tmp_path, monkeypatch, capsys):
    pytest.importorskip("ray")
    monkeypatch.chdir(tmp_path)
    assert main([*SFT[0], *SMALL_SFT, "system.n_gpus=2"]) == 0
    assert "Workers: 2 on cpu, " in capsys.readouterr().out
    out = tmp_path / value(SFT[0], "sft.output_dir")
    (checkpoint,) = (out / "lora_weights").glob("global_step_*")
    assert (checkpoint / "actor" / "adapter.safetensors").exists()
    assert read_status(out / "validation")["state"] == "finished"


def test_equal_names_of_two_models_do_not_resume_each_other(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["two_armed_bandit", "training.train_batch_size=4", "training.n_rollout=1", "training.ppo_batch_size=4"]
    assert main([*words, *SMALL_RL, "training.max_turns=1"]) == 0
    assert main([*words, *SMALL_RL, "training.max_turns=1", "model.base_model=tiny/sokoban"]) == 1
    assert "was trained with model_path=tiny/bandit, this run asks for tiny/sokoban" in capsys.readouterr().err


def test_a_checkpoint_is_evaluated_with_more_turns_than_it_was_trained_with(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["sokoban", "training.train_batch_size=2", "training.n_rollout=2", "training.ppo_batch_size=4"]
    assert main([*words, *SMALL_RL, "training.max_turns=2"]) == 0
    run = tmp_path / "checkpoints" / "RAGEN" / "ragen-main-exp"
    checkpoint = run / "global_step_1" / "actor"
    assert ragen(["eval", str(checkpoint), "--max-turn", "25", "--mode", "sampled", "--out", "evaluation"]) == 0
    config = yaml.safe_load(Path("evaluation/config.yaml").read_text())
    assert config["actor_rollout_ref"]["model"]["path"] == str(checkpoint)
    assert config["custom_envs"]["SimpleSokoban"]["max_actions_per_traj"] == 25
    random = list(read_episodes(Path("evaluation/episodes/random.jsonl.gz")))
    assert 2 < max(len(episode.turns) for episode in random) <= 25
    assert {episode.tag for episode in random} == {"SimpleSokoban"}
    # A context for two turns ends the episodes early, and the command says so.
    short = "actor_rollout_ref.rollout.max_model_len=200"
    assert ragen(["eval", str(checkpoint), "--max-turn", "25", "--no-reference", "--out", "short", short]) == 0
    assert re.search(r"episodes ended with their\s+context full. Raise\s+actor_rollout_ref", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("line", "changes", "expected"),
    [
        pytest.param(lines("train.sh")[0], SMALL_RL, "  step 1/", id="rl"),
        pytest.param(lines("train.sh")[8], SMALL_SFT, "Merged model: models/sft/", id="sft"),
    ],
)
def test_a_shell_runs_a_command_and_keeps_its_output_where_it_was_sent(line, changes, expected, tmp_path):
    command, output = line
    typed = f"mkdir -p ./log/terminal; {command.replace('train.sh', f'{ROOT}/train.sh')} {shlex.join(changes)} {output}"
    assert subprocess.run(["bash", "-c", typed], cwd=tmp_path, timeout=240).returncode == 0
    (log,) = (tmp_path / "log" / "terminal").iterdir()
    assert output.endswith(f"./log/terminal/{log.name}")
    assert expected in log.read_text()


def test_the_shell_script_finds_its_place_and_hands_on_the_exit_code(tmp_path):
    environment = os.environ | {"CONFIG_TRAINING__MAX_TURNS": "2"}
    command = ["bash", str(ROOT / "train.sh"), "frozenlake"]
    shown = subprocess.run([*command, "--show"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "agent_proxy.max_turn=2" in shown.stdout
    failed = subprocess.run([*command, "training.foo=1"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert failed.returncode == 1
    assert "training.foo: unknown key" in failed.stderr


def test_ragen_legacy_is_the_script(capsys):
    assert ragen(["legacy", "frozenlake", "--show", "training.max_turns=2"]) == 0
    assert "agent_proxy.max_turn=2" in capsys.readouterr().out
