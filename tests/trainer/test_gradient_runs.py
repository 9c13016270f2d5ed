"""Runs that are made for their gradients: what they leave out, where they begin and where they end."""

import pytest

from ragen.trainer.build import build_trainer
from ragen.trainer.gradient_runs import GradientRuns
from tests.trainer import runs
from tests.trainer.runs import LAKE, Run, small_config

ACTOR = "actor_rollout_ref.actor"
REGULARIZED = (f"{ACTOR}.use_kl_loss=True", f"{ACTOR}.kl_loss_coef=0.01", f"{ACTOR}.entropy_coeff=0.01")
ON = "trainer.gradient_analysis_mode=True"
EVERY_STEP = "trainer.gradient_analysis_every=1"


def gradient_runs(tmp_path, *changes: str, start_step: int = 0) -> GradientRuns:
    config = small_config(tmp_path, ON, "trainer.gradient_analysis_every=3", *changes).trainer
    return GradientRuns(config, None, None, start_step=start_step)  # type: ignore[arg-type]


def test_a_probe_begins_with_the_step_of_its_checkpoint_and_validates_inside_it(tmp_path):
    probe = gradient_runs(tmp_path, "trainer.gradient_analysis_only=True", start_step=4)
    assert probe.is_probe and probe.is_frozen and probe.first_step == 4
    assert [step for step in (4, 5) if probe.validates_before(step)] == [4]
    fresh = gradient_runs(tmp_path, "trainer.gradient_analysis_only=True")
    assert not fresh.is_probe and fresh.is_frozen and fresh.first_step == 1 and not fresh.validates_before(1)
    training = gradient_runs(tmp_path, start_step=4)
    assert not training.is_probe and not training.is_frozen and training.first_step == 5


def test_the_last_step_is_that_of_the_exit(tmp_path):
    steps = "trainer.total_training_steps=9"
    exits = "trainer.exit_after_gradient_analysis=True"
    assert gradient_runs(tmp_path, steps).last_step == 9
    assert gradient_runs(tmp_path, steps, exits).last_step == 1
    assert gradient_runs(tmp_path, steps, exits, start_step=4).last_step == 7
    assert gradient_runs(tmp_path, steps, exits, start_step=7).last_step == 9, "no analysis is left"


@pytest.mark.parametrize("change", ["trainer.gradient_analysis_only=True", "trainer.exit_after_gradient_analysis=True"])
def test_runs_made_for_their_gradients_take_no_memory_for_copies(tmp_path, change):
    trainer = build_trainer(small_config(tmp_path, ON, "trainer.save_freq=1", "trainer.total_training_steps=3", change))
    assert trainer is not None
    with trainer.running():
        trainer.begin()
    assert not trainer.checkpoints.is_background


def test_an_exit_and_a_checkpoint_come_with_an_analysis(tmp_path):
    ends = gradient_runs(tmp_path, "trainer.exit_after_gradient_analysis=True")
    assert [step for step in range(1, 6) if ends.is_exit(step)] == [1, 4]
    assert not any(ends.saves_at(step) for step in range(1, 6))
    saves = gradient_runs(tmp_path, "trainer.save_at_gradient_analysis=True")
    assert [step for step in range(1, 6) if saves.saves_at(step)] == [1, 4]
    assert not any(saves.is_exit(step) for step in range(1, 6))


def train(root, *changes: str, env=runs.BANDIT) -> Run:
    return runs.train(root, ON, *changes, env=env)


def test_exit_comes_before_the_actor_update_the_checkpoint_and_the_validation(tmp_path):
    run = train(tmp_path, EVERY_STEP, "trainer.exit_after_gradient_analysis=True", "trainer.save_freq=1", env=LAKE)
    assert list(run.metrics) == [0, 1]
    row = run.metrics[1]
    assert row["trainer/exited_after_gradient_analysis"] == 1
    assert "actor/pg_loss" not in row and "val-env/FrozenLake/success" not in row
    assert "critic/vf_loss" in row
    assert run.checkpoints == []
    assert run.status["state"] == "finished" and run.status["reason"] == "exit_after_gradient_analysis"
    assert run.status["next"] == f"ragen gradients plot {tmp_path}"


def test_a_checkpoint_of_weights_can_be_probed_at_its_own_step(tmp_path):
    weights_only = [f"{role}.checkpoint.save_contents=[model]" for role in (ACTOR, "critic")]
    saved = train(
        tmp_path / "run",
        *weights_only,
        "trainer.save_freq=100",
        "trainer.save_at_gradient_analysis=True",
        "trainer.gradient_analysis_every=2",
        "trainer.total_training_steps=3",
        "trainer.max_actor_ckpt_to_keep=null",
        "trainer.max_critic_ckpt_to_keep=null",
        env=LAKE,
    )
    assert saved.checkpoints == ["global_step_1", "global_step_3"]
    probe = train(
        tmp_path / "probe",
        *REGULARIZED,
        EVERY_STEP,
        "trainer.resume_mode=resume_path",
        f"trainer.resume_from_path={tmp_path}/run/global_step_3",
        "trainer.gradient_analysis_only=True",
        "trainer.exit_after_gradient_analysis=True",
        "trainer.total_training_steps=3",
        env=LAKE,
    )
    assert list(probe.metrics) == [3]
    row = probe.metrics[3]
    assert row["trainer/gradient_analysis_only"] == row["trainer/exited_after_gradient_analysis"] == 1
    assert row["critic/skipped_for_gradient_analysis_only"] == 1
    assert row["val-env/FrozenLake/success"] >= 0  # val_before_train
    assert row["grad_norm/all/task"] > 0 and row["grad_norm/all/entropy"] > 0 and row["grad_norm/all/kl"] > 0
    assert probe.checkpoints == []


def test_resuming_at_step_two_analyses_step_three(tmp_path):
    """The way of the walkthrough: one more iteration, and out before its update."""
    train(tmp_path / "run", env=LAKE)
    probe = train(
        tmp_path / "probe",
        EVERY_STEP,
        "trainer.resume_mode=resume_path",
        f"trainer.resume_from_path={tmp_path}/run/global_step_2",
        "trainer.exit_after_gradient_analysis=True",
        "trainer.total_training_steps=3",
        "trainer.val_before_train=False",
        "trainer.save_freq=-1",
        "trainer.test_freq=-1",
        env=LAKE,
    )
    assert list(probe.metrics) == [3]
    assert "critic/vf_loss" in probe.metrics[3] and "grad_norm/all/task" in probe.metrics[3]
    assert isinstance(probe, Run) and probe.checkpoints == []
