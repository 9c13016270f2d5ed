"""Every end of a run says state, reason, validation, folder, checkpoint and the next command; its exit code counts."""

import json
import sys

import pytest

from ragen.cli import main
from ragen.env.bandit.env import BanditEnv
from ragen.errors import NOTHING_LEARNED
from ragen.tracking.rundir import RunDir
from ragen.trainer.build import build_trainer
from ragen.trainer.endings.ending import Cause, compose, ended_by, next_command, read_ending, stopped, this_command
from tests.trainer.runs import Run, finish, overrides, small_config, start_process
from tests.trainer.test_agent_trainer import GRPO, NOTHING_KEPT, ROLLOUT

STOP = "trainer.early_stop"


def fit(tmp_path, *changes: str):
    trainer = build_trainer(small_config(tmp_path, GRPO, *changes))
    assert trainer is not None
    return trainer.fit()


def break_environment(monkeypatch) -> None:
    def step(self, action):
        raise ValueError("the pull broke")

    monkeypatch.setattr(BanditEnv, "step", step)


def test_a_finished_run_says_what_it_achieved_and_what_to_do_next(tmp_path, capsys):
    ending = fit(tmp_path)
    said = capsys.readouterr().out
    assert ending.exit_code == 0 and said.endswith(f"{ending}\n")
    lines = said.splitlines()[-5:]
    assert lines[0] == "Finished at step 2 of 2: all steps are done."
    assert lines[1].startswith("  validation: Bandit ") and "] at step 0 -> " in lines[1]
    assert "] at step 2" in lines[1]
    assert lines[2:] == [
        f"  run folder: {tmp_path}",
        f"  checkpoint: {tmp_path / 'global_step_2'}",
        f"  next:       ragen plot {tmp_path}",
    ]
    status = Run(tmp_path).status
    assert status["exit_code"] == 0 and status["checkpoint"] == str(tmp_path / "global_step_2")
    before, after = status["validation"][0]
    assert (before["step"], after["step"]) == (0, 2) and after["low"] <= after["mean"] <= after["high"]


def test_a_failing_environment_is_named_at_the_first_step_and_at_the_end(tmp_path, capsys, monkeypatch):
    break_environment(monkeypatch)
    ending = fit(tmp_path, f"{ROLLOUT}.rollout_filter_empty_stop_steps=2", "trainer.total_training_steps=9")
    said = capsys.readouterr().out
    assert said.count("train: the environment raised in all 12 episodes: ValueError: the pull broke") == 1
    assert "example:    ValueError: the pull broke" in said
    assert ending.exit_code == NOTHING_LEARNED
    status = Run(tmp_path).status
    assert (status["state"], status["early_stop"]) == ("early_stopped", "empty_filtered_steps")
    assert status["reason"].startswith("the filter kept no group in 2 steps in a row, and in the last rollout the env")
    assert status["next"] == f"ragen show {tmp_path} --status env_error --limit 1"
    assert status["cause"] == ""  # what failed is the environment, whatever the policy does


def test_an_environment_that_fails_to_the_last_step_makes_no_green_run(tmp_path, monkeypatch):
    break_environment(monkeypatch)
    assert fit(tmp_path).exit_code == NOTHING_LEARNED
    assert Run(tmp_path).status["state"] == "failed"


def test_a_model_without_the_reply_format_is_shown_with_a_reply(tmp_path, capsys):
    stop = [f"{STOP}.low_success_patience=1", "trainer.test_freq=1", f"{ROLLOUT}.response_length=1"]
    ending = fit(tmp_path, *stop)
    said = capsys.readouterr().out
    assert (
        "validation success stayed below 0.01 in 1 validations in a row, and in the last rollout 4 of 4 replies" in said
    )
    assert "  example:    <think>" in said and "ragen sft" in said
    assert ending.exit_code == NOTHING_LEARNED
    status = Run(tmp_path).status
    assert (status["state"], status["early_stop"], status["cause"]) == (
        "early_stopped",
        "low_validation_success",
        "no form",
    )
    assert "; the cause: no form (in the last 2 validations 100% of turns were invalid" in status["reason"]
    assert (
        status["remedy"].startswith("Let the prompt show a finished answer") and "response_length" in status["remedy"]
    )


def test_steps_that_never_trained_end_with_an_exit_code_also_at_the_last_step(tmp_path):
    ending = fit(tmp_path, *NOTHING_KEPT)
    assert ending.exit_code == NOTHING_LEARNED and ending.cause.state == "finished"


def test_equal_rewards_are_shown(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(BanditEnv, "step", lambda self, action: pull(self, action))
    filters = [f"{ROLLOUT}.rollout_filter_include_zero=False", f"{ROLLOUT}.rollout_filter_empty_stop_steps=1"]
    ending = fit(tmp_path, *filters, "es_manager.format_penalty=0")
    assert ending.cause.trouble.kind == "equal_rewards"
    assert "example:    group 0: 0.5 0.5 0.5 0.5; group 1: 0.5" in capsys.readouterr().out
    assert Run(tmp_path).status["cause"] == ending.cause.diagnosis == "all fail"
    assert ending.exit_code == NOTHING_LEARNED


original = BanditEnv.step


def pull(env, action):
    """Every pull fails with the same reward."""
    from dataclasses import replace

    result = original(env, action)
    return replace(result, reward=0.5, info=result.info | {"success": 0.0})


@pytest.mark.parametrize(("mode", "change"), [("auto", ""), ("disable", " trainer.resume_mode=auto")])
def test_an_interrupted_run_says_how_to_resume(mode, change, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", "a=b c"])
    settings = ("trainer.save_freq=1", "trainer.total_training_steps=3", f"trainer.resume_mode={mode}")
    trainer = build_trainer(small_config(tmp_path, GRPO, *settings))
    assert trainer is not None
    train_step = trainer.train_step

    def interrupt(step):
        if step == 2:
            raise KeyboardInterrupt
        return train_step(step)

    monkeypatch.setattr(trainer, "train_step", interrupt)
    with pytest.raises(KeyboardInterrupt):
        trainer.fit()
    said = capsys.readouterr().out
    assert "Interrupted at step 1 of 3: interrupted by the user." in said
    assert f"  next:       python train.py 'a=b c'{change}   (resumes from the checkpoint)" in said
    assert Run(tmp_path).status["exit_code"] == 130


def test_a_run_that_began_with_a_named_checkpoint_continues_from_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", "trainer.resume_mode=resume_path"])
    (tmp_path / "config.yaml").write_text("trainer: {resume_mode: resume_path}")
    command = next_command(tmp_path, ended_by(RuntimeError("no")), [], tmp_path / "global_step_2")
    change = "trainer.resume_mode=auto trainer.resume_from_path=null"
    assert command == f"python train.py trainer.resume_mode=resume_path {change}   (resumes from the checkpoint)"


def test_a_failure_is_said_with_its_reason_and_without_terminal_codes(tmp_path):
    ending = compose(tmp_path, ended_by(RuntimeError("no \x1b[2J" + "x" * 9999)), step=None, total_steps=5)
    first, _, checkpoint, command = str(ending).splitlines()
    assert first.startswith("Failed: RuntimeError: no \\x1b[2Jxx") and len(first) < 500
    assert checkpoint == "  checkpoint: none (trainer.save_freq)"
    assert command.endswith("(starts over: no checkpoint was saved)")
    assert ending.exit_code == 1


def test_a_damaged_file_does_not_hide_the_end(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("nonsense\n")
    ending = compose(tmp_path, Cause(state="finished", reason="done"), step=0, total_steps=0)
    assert ending.exit_code == 0 and "Finished" in str(ending)


def test_a_validation_of_an_older_run_has_no_interval(tmp_path):
    RunDir(tmp_path).log(0, {"val-env/T/success": 0.5})
    ending = compose(tmp_path, Cause(state="finished", reason="done"), step=0, total_steps=0)
    assert "  validation: T 0.500 at step 0\n" in str(ending)
    assert json.loads(json.dumps(ending.facts(), allow_nan=False))["validation"][0][0]["low"] is None


def test_the_success_on_levels_that_training_has_not_played_is_said(tmp_path):
    name, run = "val-env/T", RunDir(tmp_path)
    whole = {f"{name}/success": 0.5, f"{name}/success_low": 0.25, f"{name}/success_high": 0.75}
    run.log(0, whole | {f"{name}/levels_unseen": 8.0, f"{name}/levels_seen": 0.0, f"{name}/success_unseen": 0.5})
    run.log(9, whole | {f"{name}/levels_unseen": 4.0, f"{name}/levels_seen": 4.0, f"{name}/success_unseen": 0.25})
    ending = compose(tmp_path, Cause(state="finished", reason="done"), step=9, total_steps=9)
    before, after = str(ending).splitlines()[1].split(" -> ")
    assert before == "  validation: T 0.500 [0.250, 0.750] at step 0"
    assert after.startswith("0.500 [0.250, 0.750] at step 9 (unseen levels: 0.250 [")


def test_the_best_checkpoint_is_named_where_it_is_not_the_newest(tmp_path):
    for name, step in (("latest", 9), ("best", 4)):
        (tmp_path / f"{name}_checkpointed_iteration.txt").write_text(f"{step}\n")
        (tmp_path / f"global_step_{step}").mkdir()
    ending = compose(tmp_path, Cause(state="finished", reason="done"), step=9, total_steps=9)
    assert f"  checkpoint: {tmp_path}/global_step_9\n  best:       {tmp_path}/global_step_4\n" in str(ending)


def test_the_end_is_said_also_where_it_cannot_be_written_down(tmp_path, capsys, monkeypatch):
    pull = BanditEnv.step

    def block_status(self, action):
        status = tmp_path / "status.json"
        if status.is_file():
            status.unlink()
            status.mkdir()
        return pull(self, action)

    monkeypatch.setattr(BanditEnv, "step", block_status)
    with pytest.raises(IsADirectoryError):
        fit(tmp_path)
    said = capsys.readouterr().out
    assert "Finished at step 2 of 2" in said and f"  checkpoint: {tmp_path / 'global_step_2'}" in said


def test_every_rule_has_its_sentence_and_a_remedy(tmp_path):
    config = small_config(tmp_path)
    for rule in ("empty_filtered_steps", "reward_variance_collapse", "low_validation_success"):
        cause = stopped(rule, config, {}, [])
        assert cause.reason.endswith(f"({rule})") and cause.trouble.remedy and cause.early_stop == rule


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        (["train.py", "a=[1,2]"], "python train.py 'a=[1,2]'"),
        (["/my x/train.py", "a=1"], "python '/my x/train.py' a=1"),  # typed in another folder
        (["/x/bin/ragen", "train"], "ragen train"),
        (["/x/ragen/cli/__main__.py", "train"], "ragen train"),
        (["my.py"], "python my.py"),
    ],
)
def test_the_next_command_is_the_one_that_was_typed(monkeypatch, argv, command):
    monkeypatch.setattr(sys, "argv", argv)
    assert this_command() == command


@pytest.mark.slow
def test_the_exit_code_leaves_the_process(tmp_path):
    steps = [f"{ROLLOUT}.rollout_filter_empty_stop_steps=1", *NOTHING_KEPT]
    code, output = finish(start_process(tmp_path, *steps))
    assert code == NOTHING_LEARNED, output
    assert "Stopped early at step 1 of 2" in output and "Traceback" not in output


def test_a_run_that_ended_before_says_so_again_with_the_same_exit_code(tmp_path, capsys):
    changes = [f"{ROLLOUT}.rollout_filter_empty_stop_steps=1", *NOTHING_KEPT]
    first = fit(tmp_path, *changes)
    capsys.readouterr()
    code = main(["train", *overrides(tmp_path, GRPO, *changes)])
    said = capsys.readouterr().out
    assert code == first.exit_code == NOTHING_LEARNED
    assert "Nothing to do" in said and said.endswith(f"{first}\n")


def test_a_checkpoint_past_the_last_step_trains_nothing_and_says_what_to_set(tmp_path, capsys):
    fit(tmp_path)
    capsys.readouterr()
    shorter = overrides(tmp_path, GRPO, "trainer.total_training_steps=1")
    assert main(["train", *shorter]) == 0
    said = capsys.readouterr().out
    assert f"{tmp_path / 'global_step_2'} is past trainer.total_training_steps=1. Nothing to do; set it above 2" in said
    assert "Finished at step 2: all steps are done." in said and "of 1:" not in said
    RunDir(tmp_path).write_status("interrupted", "interrupted by SIGTERM", step=2)
    assert main(["train", *shorter]) == 0
    said = capsys.readouterr().out
    assert (
        "Finished at step 2: the checkpoint is past trainer.total_training_steps=1, so nothing was trained: set it "
        "above 2 to continue.\n" in said
    )
    assert "of 1:" not in said


def test_a_finished_run_of_an_earlier_version_ends_well(tmp_path):
    RunDir(tmp_path).write_status("finished", step=2)
    ending = read_ending(tmp_path, total_steps=2)
    assert ending is not None and ending.exit_code == 0
    assert str(ending).startswith("Finished at step 2 of 2: all steps are done.")
    assert read_ending(tmp_path / "nothing", total_steps=2) is None
