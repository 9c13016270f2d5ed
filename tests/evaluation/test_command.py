"""`ragen eval` as a user types it, with the embedded models."""

import fcntl
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import ragen
from ragen.cli import main
from ragen.config import build_config, load_config
from ragen.config.show import to_yaml
from ragen.llm_agent import policies
from ragen.models.resolve import TINY_ROOT
from ragen.sft.data import levels_of
from ragen.tracking.episodes import read_episodes
from ragen.tracking.lock import LOCK
from ragen.trainer.held_out import PlayedLevels
from tests.evaluation.conftest import SMALL

EMBEDDED = Path(ragen.__file__).parent / "models" / "tiny"


def test_an_evaluation_leaves_a_whole_run_directory(sokoban_run):
    config = build_config(yaml.safe_load((sokoban_run / "config.yaml").read_text()))
    assert config.model_path == "tiny"
    status = json.loads((sokoban_run / "status.json").read_text())
    assert status["state"] == "finished"
    files = {path.name for path in (sokoban_run / "episodes").iterdir()}
    assert files == {"sampled_T0.5.jsonl.gz", "greedy.jsonl.gz", "random.jsonl.gz", "solver.jsonl.gz"}
    for name in files:
        assert len(list(read_episodes(sokoban_run / "episodes" / name))) == 6


def test_two_evaluations_do_not_share_a_folder(tmp_path, capsys):
    (tmp_path / LOCK).touch()
    with (tmp_path / LOCK).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert main(["eval", "tiny", "--out", str(tmp_path), *SMALL]) == 1
    assert "is in use" in capsys.readouterr().err
    assert not (tmp_path / "status.json").exists()


def test_an_evaluation_that_is_interrupted_has_not_failed(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("ragen.evaluation.command.evaluate_model", interrupted)
    assert main(["eval", "--config-name", "_2_sokoban", "--out", str(tmp_path / "run"), *SMALL]) == 130
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert (status["state"], status["reason"]) == ("interrupted", "interrupted by the user")


def test_an_evaluation_says_which_limit_cut_the_replies(tmp_path, capsys):
    one = ["--no-reference", "--mode", "greedy", "agent_proxy.max_turn=1", "es_manager.val.env_groups=1"]
    short = [*SMALL, *one, "es_manager.val.env_configs.n_groups=[1]", "actor_rollout_ref.rollout.response_length=4"]
    assert main(["eval", "--config-name", "_2_sokoban", "--out", str(tmp_path / "run"), *short]) == 0
    said = capsys.readouterr().out
    assert "CoordSokoban: 1 level x 1, up to 1 turn, tiny" in said
    assert "greedy: 1 of 1 replies were cut by actor_rollout_ref.rollout.response_length=4." in said


def test_an_evaluation_says_what_pays(sokoban_run):
    record = json.loads((sokoban_run / "preflight.json").read_text())["tags"]["CoordSokoban"]
    metrics = json.loads((sokoban_run / "metrics.jsonl").read_text())
    assert list(record["policies"]) == ["silent", "random", "solver", "model"]
    for name, policy in (("random", "random"), ("solver", "solver"), ("model", "sampled")):
        assert record["policies"][name]["success"] == metrics[f"{policy}/CoordSokoban/success"]
        assert record["policies"][name]["total"] == pytest.approx(metrics[f"{policy}/CoordSokoban/score"])
    assert record["policies"]["silent"]["total"] == -0.5


def test_an_evaluation_asks_once_whether_a_reference_can_play(tmp_path, monkeypatch):
    asked, ask = [], policies._asked_seat
    monkeypatch.setattr(policies, "_asked_seat", lambda envs, tag: asked.append(tag) or ask(envs, tag))
    options = ["--config-name", "_2_sokoban", "--mode", "greedy", "--out", str(tmp_path / "run")]
    assert main(["eval", *options, *SMALL]) == 0
    assert asked == ["CoordSokoban"] * 2, "of chance, and of the solver"


def test_metrics_have_the_names_of_the_rollout_and_intervals(sokoban_run):
    metrics = json.loads((sokoban_run / "metrics.jsonl").read_text())
    for policy in ("sampled", "greedy", "random", "solver"):
        low, mean, high = (metrics[f"{policy}/CoordSokoban/{k}"] for k in ("success_low", "success", "success_high"))
        assert 0 <= low <= mean <= high <= 1
        for key in ("num_actions", "action_is_valid", "action_is_effective", "pass@1", "reward", "non-zero/reward"):
            assert f"{policy}/CoordSokoban/{key}" in metrics
    assert metrics["solver/CoordSokoban/success"] == 1


def test_saved_episodes_hold_exact_tokens(sokoban_run):
    for episode in read_episodes(sokoban_run / "episodes" / "greedy.jsonl.gz"):
        for turn in episode.turns:
            assert len(turn.response_ids) == len(turn.logprobs) > 0
            assert turn.prompt_ids
            assert all(logprob <= 0 for logprob in turn.logprobs)


def test_the_module_of_the_documents_is_the_same_command(tmp_path):
    out = tmp_path / "run"
    command = [sys.executable, "-m", "ragen.llm_agent.agent_proxy", "--config-name", "_2_sokoban", "--out", str(out)]
    result = subprocess.run([*command, *SMALL], capture_output=True, text=True, timeout=120, check=True)
    assert "CoordSokoban: 6 levels" in result.stdout
    assert (out / "episodes" / "greedy.jsonl.gz").exists()


def test_a_configuration_of_ones_own_need_not_name_the_number_of_groups(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("defaults: [_2_sokoban, _self_]\nes_manager: {train: {group_size: 4}}\n")
    (tmp_path / "empty.yaml").write_text("defaults: [_2_sokoban, _self_]\n")
    words = ["--config-dir", ".", "--no-reference", "--mode", "greedy", "es_manager.val.env_groups=2"]
    for name in ("mine", "empty"):
        assert main(["eval", "tiny", "--config-name", name, "--out", name, *words]) == 0
        assert "CoordSokoban: 2 levels" in capsys.readouterr().out


def test_episodes_may_have_25_turns_and_more(tmp_path):
    # The embedded model has never seen such large boards, so some episodes use every turn.
    args = [
        "eval",
        "tiny",
        "--config-name",
        "_2_sokoban",
        "--max-turn",
        "27",
        "--max-actions",
        "60",
        "--mode",
        "greedy",
    ]
    long = ["actor_rollout_ref.rollout.max_model_len=4096", "es_manager.val.env_configs.tags=[LargerSokoban]"]
    assert main([*args, "--no-reference", "--out", str(tmp_path / "run"), *SMALL, *long]) == 0
    turns = [len(e.turns) for e in read_episodes(tmp_path / "run" / "episodes" / "greedy.jsonl.gz")]
    assert max(turns) == 27


def test_a_model_that_cannot_be_had_is_an_error_that_says_what_to_do(tmp_path, capsys):
    assert main(["eval", "no/such-model", "--config-name", "_2_sokoban", "--out", str(tmp_path / "run")]) == 1
    assert "tiny" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--config-name", "countdown"], "No embedded model plays countdown"),
        (["actor_rollout_ref.rollout.max_model_len=99999"], "max_model_len is 99999"),
    ],
)
def test_what_is_refused_before_play_leaves_nothing(tmp_path, monkeypatch, capsys, words, reason):
    monkeypatch.chdir(tmp_path)
    assert main(["eval", "tiny", *words]) == 1
    assert reason in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("start", ["", "model_path="])
def test_the_config_of_the_run_counts_however_its_checkpoint_is_named(sokoban_run, tmp_path, capsys, start):
    run, out = tmp_path / "run", tmp_path / "out"
    actor = run / "global_step_1" / "actor"
    shutil.copytree(EMBEDDED / "sokoban", actor)
    shutil.copy(sokoban_run / "config.yaml", run)
    assert main(["eval", f"{start}{actor}", "--mode", "greedy", "--no-reference", "--out", str(out)]) == 0
    assert f"Environment and prompts: {run / 'config.yaml'}" in capsys.readouterr().out
    played = yaml.safe_load((out / "config.yaml").read_text())
    assert played["es_manager"]["val"]["env_groups"] == 6
    assert played["actor_rollout_ref"]["model"]["path"] == str(actor)


@pytest.mark.parametrize("start", ["", "model_path="])
def test_a_run_stands_for_its_newest_checkpoint_which_is_said(sokoban_run, tmp_path, capsys, start):
    run, out = tmp_path / "run", tmp_path / "out"
    for step in (8, 10):
        actor = shutil.copytree(EMBEDDED / "sokoban", run / f"global_step_{step}" / "actor")
    shutil.copy(sokoban_run / "config.yaml", run)
    assert main(["eval", f"{start}{run}", "--mode", "greedy", "--no-reference", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"Model: {actor}, the newest in {run}\nEnvironment and prompts: {run / 'config.yaml'}\n")
    assert yaml.safe_load((out / "config.yaml").read_text())["actor_rollout_ref"]["model"]["path"] == str(actor)


def test_a_wrong_key_is_an_error_before_anything_is_written(tmp_path, capsys):
    assert main(["eval", "--out", str(tmp_path / "run"), "agent_proxy.max_trun=3"]) == 1
    assert "max_turn" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_two_evaluations_of_the_same_command_are_equal(sokoban_run, tmp_path):
    again = tmp_path / "again"
    args = ["eval", "--config-name", "_2_sokoban", "--mode", "sampled", "--no-reference", "--out", str(again)]
    assert main([*args, *SMALL]) == 0
    first, second = (list(read_episodes(run / "episodes" / "sampled_T0.5.jsonl.gz")) for run in (sokoban_run, again))
    assert [e.turns for e in first] == [e.turns for e in second]


def test_unknown_commands_and_help(capsys):
    assert main(["evaluate"]) == 2
    assert main(["--help"]) == 0
    assert "ragen COMMAND" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stop:
        main(["eval", "--help"])
    assert stop.value.code == 0


def test_levels_of_the_training_are_not_evaluated_in_silence(tmp_path, capsys):
    actor = shutil.copytree(TINY_ROOT / "frozen_lake", tmp_path / "global_step_1/actor")
    plan = ["trainer.total_training_steps=2", "es_manager.val.env_groups=4"]
    (tmp_path / "config.yaml").write_text(to_yaml(load_config("quickstart", plan)))
    evaluate = ["eval", str(actor), "--mode", "greedy", "--no-reference", "--out", str(tmp_path / "out")]
    assert main(evaluate) == 0
    assert "Not held out" not in capsys.readouterr().out
    assert main([*evaluate, "seed.val=10030"]) == 0
    assert (
        "Not held out: the levels 10030 to 10033 meet 10000 to 10031, those of the run's training (seed.train=10000). "
        "Held-out levels: for example seed.val=10032.\n"
    ) in capsys.readouterr().out


def test_levels_that_the_model_was_trained_on_are_told_apart(tmp_path, capsys):
    model = shutil.copytree(EMBEDDED / "sokoban", tmp_path / "model")
    config = load_config("eval", SMALL)
    played = PlayedLevels()
    played.add(levels_of(config, "CoordSokoban", range(config.seed.val, config.seed.val + 2)))
    played.write(model)
    main(["eval", str(model), *SMALL[1:], "--mode", "greedy", "--no-reference", "--out", str(tmp_path / "out")])
    assert "on the 4 levels that the model was not trained on, by content." in " ".join(capsys.readouterr().out.split())
    metrics = json.loads((tmp_path / "out" / "metrics.jsonl").read_text())
    assert metrics["greedy/CoordSokoban/levels_seen"] == 2
    assert metrics["greedy/CoordSokoban/levels_unseen"] == 4
