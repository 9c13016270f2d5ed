"""`ragen check` as a user types it."""

import os
import subprocess
import sys
from pathlib import Path

import ragen
from ragen.cli import main
from ragen.env.frozen_lake.env import FrozenLakeEnv
from ragen.trainer.starting import own_parts
from tests.evaluation.conftest import SMALL
from tests.sweeps.driving.test_slots import pretend_nvidia_smi


def test_the_command_works_away_from_the_repository_and_loads_no_torch(tmp_path):
    code = (
        "import sys\nfrom ragen.cli import main\n"
        "code = main(['check', '--config-name', '_2_sokoban'])\n"
        "sys.exit('torch was loaded' if 'torch' in sys.modules else code)"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(ragen.__file__).parents[1])}
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert (result.returncode, result.stderr) == (0, "")
    title, columns, silent, random, solver, line, refusal = result.stdout.splitlines()
    assert title == "What pays in CoordSokoban:" and columns.split()[:2] == ["policy", "success"]
    assert silent.split() == ["silent", "0.000", "-0.50", "0.00", "128"]
    assert (random.split()[0], solver.split()[0]) == ("random", "solver")
    assert line.startswith("Trying earns -1.00 when it fails and 10.") and line.endswith("from a success of 0.043 on.")
    assert refusal.startswith("warning: a training would be refused here. The model Qwen/Qwen2.5-3B-Instruct is not av")
    assert list(tmp_path.iterdir()) == []  # nothing is written


def test_devices_that_a_training_would_not_get_are_a_warning(capsys, tmp_path, monkeypatch):
    pretend_nvidia_smi(tmp_path, monkeypatch, r"0\n")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.chdir(tmp_path)
    assert main(["check", "--config-name", "quickstart", *SMALL]) == 0
    assert "warning" not in capsys.readouterr().out, "the model is embedded, the GPU is there"
    assert main(["check", "--config-name", "quickstart", *SMALL, "system.CUDA_VISIBLE_DEVICES=5"]) == 0
    *_, last = capsys.readouterr().out.splitlines()
    assert last.startswith("warning: a training would be refused here. system.CUDA_VISIBLE_DEVICES=5: nvidia-smi lists")


def test_a_warning_is_no_failure(capsys):
    """Where every level costs more than it gives, silence beats chance."""
    free = ["es_manager.format_penalty=0", "custom_envs.CoordSokoban.max_actions_per_traj=2"]
    assert main(["check", "--config-name", "_2_sokoban", *SMALL, *free]) == 0
    said = capsys.readouterr().out
    assert "warning: silence pays in CoordSokoban. An agent that gives invalid replies only earns 0.00, the" in said
    assert "es_manager.format_penalty (now 0; from -0.04 down" in said


def test_the_model_plays_on_request(capsys):
    foreign = ["model_path=tiny/bandit", "actor_rollout_ref.rollout.max_model_len=2048"]
    assert main(["check", "--config-name", "_2_sokoban", "--model", *SMALL, *foreign]) == 0
    said = capsys.readouterr().out
    [row] = [line.split() for line in said.splitlines() if line.startswith("  model ")]
    assert row[-1] == "6" and "the model " in said and "warning: silence pays" in said


def test_wrong_options_of_an_environment_are_one_line(capsys):
    assert main(["check", "--config-name", "_2_sokoban", "custom_envs.CoordSokoban.env_config.num_boxes=77"]) == 1
    assert capsys.readouterr().err.startswith("error: custom_envs.CoordSokoban.env_config.num_boxes is 77.")


def test_an_environment_that_raises_is_an_error_with_its_message(capsys, monkeypatch):
    def fail(self, action):
        raise ValueError("thin ice")

    monkeypatch.setattr(FrozenLakeEnv, "step", fail)
    assert main(["check", "--config-name", "quickstart", *SMALL]) == 1
    said = capsys.readouterr()
    assert "error: custom_envs.FrozenLake: ValueError: thin ice" in said.err and said.out == ""


def test_an_environment_of_ones_own_that_breaks_its_contract_is_an_error(capsys):
    own = ["custom_envs.Bandit.env_type=tests.api.own:Mute", "custom_envs.Bandit.env_config=null"]
    assert main(["check", "--config-name", "quickstart_bandit", "model_path=tiny/bandit", *own]) == 1
    said = capsys.readouterr()
    assert said.err.startswith("error: custom_envs.Bandit.env_type=tests.api.own:Mute: tried on level 123: step")
    assert "Try it with ragen.check_env." in said.err and said.out == ""


def test_an_environment_of_ones_own_is_tried_once(capsys, monkeypatch):
    tried = []
    monkeypatch.setattr(own_parts, "check_environment", lambda config, tag: tried.append(tag))
    own = "custom_envs.Bandit.env_type=tests.env.text_envs:Polite"
    model = ["custom_envs.Bandit.env_config=null", "model_path=tiny/bandit"]
    assert main(["check", "--config-name", "quickstart_bandit", own, *model]) == 0
    assert tried == ["Bandit"] and "refused" not in capsys.readouterr().out


def test_budgets_that_are_too_small_for_the_solver_are_a_warning(capsys):
    nine = ["es_manager.val.env_groups=4", "es_manager.train.env_configs.tags=[Sudoku9x9]"]
    assert main(["check", "--config-name", "sudoku", *nine]) == 0
    said = capsys.readouterr().out
    assert "budgets of Sudoku9x9 are too small for its solver: of 4 episodes 0 are solved, 4 out of turns" in said
    assert "agent_proxy.max_turn (now 2)" in said
