"""What surrounds the updates of a run: levels, empty steps, early stops, validation, saving and failures."""

import math

import pytest
import torch

from ragen.errors import RagenError
from ragen.tracking import tracker
from ragen.tracking.glossary import unknown
from ragen.trainer.build import build_trainer
from tests.trainer.runs import LAKE, Run, small_config, train

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
GRPO = "algorithm.adv_estimator=grpo"
NOTHING_KEPT = (
    f"{ROLLOUT}.rollout_filter_metric=reward",
    f"{ROLLOUT}.rollout_filter_include_zero=False",
    f"{ROLLOUT}.response_length=1",
    "es_manager.format_penalty=0",
)
"""Replies of one token hold no answer: every reward is 0, and no group is kept."""


# --- levels


def test_every_step_plays_fresh_levels_and_validation_always_the_same(tmp_path):
    run = train(tmp_path, GRPO, "seed.train=500", "seed.val=7", "trainer.val_greedy=True", env=LAKE)
    for step in (1, 2):
        levels = [(episode.group_id, episode.member, episode.seed) for episode in run.episodes(step)]
        base = 500 + (step - 1) * 3
        assert levels == [(group, member, base + group) for group in range(3) for member in range(4)]
    for step in (0, 2):
        assert [episode.seed for episode in run.episodes(step, "val")] == [7, 8, 9, 10]
        assert "val-env-greedy/FrozenLake/success" in run.metrics[step]


# --- steps without anything to train on


def weights_of(trainer) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in trainer.workers.actor.model.parameters()])


def test_an_empty_step_updates_nothing_and_an_empty_last_step_validates_and_saves(tmp_path):
    trainer = build_trainer(small_config(tmp_path, *NOTHING_KEPT))
    assert trainer is not None
    before = weights_of(trainer)
    trainer.fit()
    assert torch.equal(before, weights_of(trainer))
    run = Run(tmp_path)
    for step in (1, 2):
        row = run.metrics[step]
        assert unknown(row) == []
        assert row["rollout/empty_after_filter"] == 1
        assert row["rollout/consecutive_empty_after_filter_steps"] == step
        assert "train/batch_size" not in row and "actor/pg_loss" not in row
        assert all(math.isfinite(value) for value in row.values())
    assert "val-env/Bandit/success" in run.metrics[2]
    assert run.checkpoints == ["global_step_2"]
    assert run.status["state"] == "finished"


def test_empty_steps_in_a_row_end_the_run(tmp_path):
    steps = [f"{ROLLOUT}.rollout_filter_empty_stop_steps=2", "trainer.total_training_steps=9", "trainer.save_freq=100"]
    run = train(tmp_path, *NOTHING_KEPT, *steps)
    assert list(run.metrics) == [0, 1, 2]
    assert run.metrics[2]["early_stopped/empty_filtered_steps"] == 1
    assert run.status["state"] == "early_stopped"
    assert run.status["early_stop"] == "empty_filtered_steps"
    assert run.status["reason"].startswith("the filter kept no group in 2 steps in a row")
    assert run.checkpoints == ["global_step_2"]  # saving is on, so the end is saved


# --- early stops


def test_a_collapsed_reward_variance_ends_a_run(tmp_path):
    stop = ["variance_baseline_steps=1", "variance_window=1", "variance_factor=1"]
    changes = [*(f"trainer.early_stop.{key}" for key in stop), "trainer.total_training_steps=30"]
    run = train(tmp_path, GRPO, *changes, "trainer.save_freq=-1", "trainer.test_freq=-1")
    last = max(run.metrics)
    assert 2 <= last < 30
    stds = [run.metrics[step]["rollout/in_group_reward_std"] for step in range(1, last + 1)]
    assert all(std >= stds[0] for std in stds[:-1]) and stds[-1] < stds[0]
    assert run.metrics[last]["early_stopped/reward_variance_collapse"] == 1
    assert run.status["early_stop"] == "reward_variance_collapse"


def test_validations_that_stay_low_end_a_run(tmp_path):
    stop = ["trainer.early_stop.min_val_success=1", "trainer.early_stop.low_success_patience=2"]
    # Replies of one token solve nothing.
    changes = [f"{ROLLOUT}.response_length=1", "trainer.test_freq=1", "trainer.total_training_steps=9"]
    run = train(tmp_path, GRPO, *stop, *changes, "trainer.save_freq=5")
    assert max(run.metrics) == 2  # the validation before training does not count
    assert run.metrics[2]["early_stopped/low_validation_success"] == 1
    assert run.status["early_stop"] == "low_validation_success"
    assert run.checkpoints == ["global_step_2"]


# --- validation and saving when due


@pytest.mark.parametrize("frequency", [0, -1])
def test_validation_and_saving_can_be_switched_off(tmp_path, frequency):
    changes = [f"trainer.test_freq={frequency}", f"trainer.save_freq={frequency}", "trainer.val_before_train=False"]
    run = train(tmp_path, GRPO, *changes)
    assert list(run.metrics) == [1, 2]
    assert not any(name.startswith("val") for row in run.metrics.values() for name in row)
    assert run.checkpoints == [] and not (tmp_path / "latest_checkpointed_iteration.txt").exists()
    assert run.status["state"] == "finished"


def test_a_run_validates_and_saves_at_its_interval_and_at_the_last_step(tmp_path):
    changes = ["trainer.test_freq=2", "trainer.save_freq=2", "trainer.total_training_steps=5"]
    run = train(tmp_path, GRPO, *changes, "trainer.max_actor_ckpt_to_keep=null")
    assert [step for step, row in run.metrics.items() if "val-env/Bandit/success" in row] == [0, 2, 4, 5]
    assert run.checkpoints == ["global_step_2", "global_step_4", "global_step_5"]
    assert (tmp_path / "latest_checkpointed_iteration.txt").read_text() == "5\n"


def test_validation_alone_trains_nothing(tmp_path):
    run = train(tmp_path, "trainer.val_only=True", "trainer.validation_steps=2", "es_manager.val.group_size=2")
    assert list(run.metrics) == [0]
    assert {"val-core/Bandit/reward/mean@4", "val-aux/Bandit/reward/best@2/mean"} <= run.metrics[0].keys()
    assert unknown(run.metrics[0]) == []
    episodes = run.episodes(0, "val")
    assert len(episodes) == run.metrics[0]["val-env/episodes"] == 4 * 2 * 2
    assert run.metrics[0]["val-env/response_tokens"] == sum(len(t.response_ids) for e in episodes for t in e.turns)
    assert run.checkpoints == [] and run.status["state"] == "finished"


def test_validating_a_checkpoint_leaves_the_run_as_it_was(tmp_path):
    run = train(tmp_path, GRPO)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    train(tmp_path, GRPO, "trainer.val_only=True")
    assert {file: file.read_bytes() for file in before} == before
    validation = Run(tmp_path / "validation_of_step_2")
    assert list(validation.metrics) == [2]
    assert validation.metrics[2]["val-env/Bandit/success"] == run.metrics[2]["val-env/Bandit/success"]


# --- failures


def test_a_failing_environment_costs_its_own_group_only(tmp_path, monkeypatch):
    from ragen.env.frozen_lake.env import FrozenLakeEnv

    reset = FrozenLakeEnv.reset

    def fail_at_times(self, seed: int, member: int = 0):
        if seed == 10001 and member == 2:
            raise RuntimeError("the lake has thawed")
        return reset(self, seed, member)

    monkeypatch.setattr(FrozenLakeEnv, "reset", fail_at_times)
    run = train(tmp_path, GRPO, env=LAKE)
    first, second = run.metrics[1], run.metrics[2]
    assert first["train/faults/env_errors"] == first["train/faults/incomplete_groups"] == 1
    assert first["train/batch_size"] == 8  # the two other groups
    assert second["train/faults/env_errors"] == 0 and second["train/batch_size"] == 12
    [error] = [episode.error for episode in run.episodes(1) if episode.error]
    assert error.startswith("RuntimeError: the lake has thawed (test_agent_trainer.py:")
    assert unknown(first) == []


def test_a_rollout_that_fails_altogether_is_an_empty_step(tmp_path, monkeypatch):
    from ragen.env.frozen_lake.env import FrozenLakeEnv

    reset = FrozenLakeEnv.reset

    def fail_in_training(self, seed: int, member: int = 0):
        if seed >= 10000:
            raise RuntimeError("no ice")
        return reset(self, seed, member)

    monkeypatch.setattr(FrozenLakeEnv, "reset", fail_in_training)
    run = train(tmp_path, GRPO, env=LAKE)
    assert run.metrics[2]["rollout/empty_after_filter"] == 1
    assert run.metrics[2]["train/faults/env_errors"] == 12


def test_gradients_that_are_not_finite_are_skipped_and_counted(tmp_path, monkeypatch):
    trainer = build_trainer(small_config(tmp_path, "ppo_mini_batch_size=6"))
    assert trainer is not None
    actor, num_losses = trainer.workers.actor, 0
    before, loss = weights_of(trainer), actor.loss

    def sometimes_nan(*arguments):
        nonlocal num_losses
        num_losses += 1
        total, metrics = loss(*arguments)
        return (total * float("nan") if num_losses == 1 else total), metrics

    monkeypatch.setattr(actor, "loss", sometimes_nan)
    trainer.fit()
    run = Run(tmp_path)
    assert [run.metrics[step]["actor/skipped_steps"] for step in (1, 2)] == [1, 0]
    assert run.metrics[1]["critic/skipped_steps"] == 0
    after = weights_of(trainer)
    assert torch.isfinite(after).all() and not torch.equal(before, after)
    assert math.isfinite(run.metrics[1]["actor/grad_norm"])


def test_a_run_that_only_meets_nan_keeps_its_weights(tmp_path, monkeypatch):
    trainer = build_trainer(small_config(tmp_path, GRPO))
    assert trainer is not None
    loss, before = trainer.workers.actor.loss, weights_of(trainer)
    monkeypatch.setattr(trainer.workers.actor, "loss", lambda *x: (loss(*x)[0] * float("inf"), {}))
    trainer.fit()
    assert torch.equal(before, weights_of(trainer))
    assert Run(tmp_path).metrics[2]["actor/skipped_steps"] == 2


def test_a_failure_is_written_down_and_travels_up(tmp_path, monkeypatch):
    trainer = build_trainer(small_config(tmp_path, GRPO))
    assert trainer is not None

    def fail(batch, *, step):
        raise RuntimeError("out of memory, say")

    monkeypatch.setattr(trainer.workers, "update_actor", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        trainer.fit()
    status = Run(tmp_path).status
    assert status["state"] == "failed" and status["reason"] == "RuntimeError: out of memory, say"
    assert status["step"] == 0


def test_an_interrupted_run_says_so(tmp_path, monkeypatch):
    trainer = build_trainer(small_config(tmp_path, GRPO))
    assert trainer is not None

    def interrupt(step):
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer, "train_step", interrupt)
    with pytest.raises(KeyboardInterrupt):
        trainer.fit()
    assert Run(tmp_path).status["state"] == "interrupted"


def test_a_tracker_that_cannot_start_stops_the_run(tmp_path, monkeypatch):
    def refuse(facts):
        raise OSError("no screen")

    monkeypatch.setitem(tracker.TRACKERS, "console", refuse)
    trainer = build_trainer(small_config(tmp_path, "trainer.logger=[console]"))
    assert trainer is not None
    with pytest.raises(RagenError, match=r"console cannot start \(OSError: no screen\)"):
        trainer.fit()
    run = Run(tmp_path)
    assert run.status["state"] == "failed" and "no screen" in run.status["reason"]
    assert not (tmp_path / "episodes").exists()
