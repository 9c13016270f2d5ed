"""Weights that are not finite are neither trained on nor saved."""

from pathlib import Path

import pytest
import torch

from ragen.errors import NotFinite
from ragen.modeling.finite import non_finite
from ragen.trainer.build import build_trainer
from tests.trainer.runs import Run, small_config

GRPO = "algorithm.adv_estimator=grpo"
SAVED = [GRPO, "trainer.total_training_steps=3", "trainer.save_freq=1"]
EVAL = ["es_manager.val.env_groups=4", "--mode", "sampled", "--no-reference"]


def test_nan_and_infinity_are_found_by_name():
    tensors = {"a": torch.ones(2), "b": torch.tensor([1.0, torch.nan]), "c": torch.tensor([-torch.inf]).bfloat16()}
    assert non_finite(tensors | {"ids": torch.ones(2, dtype=torch.int64), "none": torch.empty(0)}) == ["b", "c"]
    assert non_finite({}) == []
    for bad in (torch.nan, torch.inf, -torch.inf):
        weight = torch.zeros(1003)
        weight[1001] = bad
        assert non_finite({"whole": torch.full((1003,), 3e38), "broken": weight}) == ["broken"]


# --- non-finite weights


def fit_with(root: Path, *changes: str, spoil) -> str:
    """What a run says whose trainer is spoiled before it is fitted."""
    trainer = build_trainer(small_config(root, *SAVED, *changes))
    assert trainer is not None
    spoil(trainer)
    with pytest.raises(NotFinite) as caught:
        trainer.fit()
    return str(caught.value)


def large_steps(trainer) -> None:
    """From step 2 on the learning rate is what optim.lr=inf would be."""
    learning_rate = trainer.workers.actor.optimizer.learning_rate
    trainer.workers.actor.optimizer.learning_rate = lambda step: torch.inf if step > 1 else learning_rate(step)


def test_weights_that_are_no_numbers_stop_the_run_and_the_good_checkpoint_stays(tmp_path):
    message = fit_with(tmp_path, spoil=large_steps)
    assert message.startswith("The weights of the actor are not finite after the update of step 2: ")
    assert "tensors hold NaN or infinity, the first is " in message
    assert message.endswith(f"The last good checkpoint is {tmp_path / 'global_step_1'}.")
    run = Run(tmp_path)
    assert run.status["state"] == "failed" and run.status["exit_code"] == 1
    assert run.checkpoints == ["global_step_1"] and list(run.metrics) == [0, 1]
    assert all(tensor.isfinite().all() for tensor in run.weights(1).values())


def test_a_checkpoint_is_not_written_with_a_nan_in_it(tmp_path):
    def spoil(trainer) -> None:
        save = trainer.checkpoints.save

        def spoiled(point) -> None:
            if point.step == 2:
                next(iter(trainer.workers.actor.optimizer.adam.state.values()))["exp_avg"][0] = torch.nan
            save(point)

        trainer.checkpoints.save = spoiled

    message = fit_with(tmp_path, spoil=spoil)
    assert "actor/optimizer.safetensors: 1 of " in message and "It is not saved. The last good" in message
    assert Run(tmp_path).checkpoints == ["global_step_1"]
    assert not list(tmp_path.glob(".*.tmp"))


def lost_gradients(*steps: int):
    def spoil(trainer) -> None:
        update = trainer.workers.actor.optimizer.step

        def spoiled(step: int) -> float:
            if step in steps:
                next(iter(trainer.workers.actor.optimizer.gradients().values())).fill_(torch.nan)
            return update(step)

        trainer.workers.actor.optimizer.step = spoiled

    return spoil


def test_one_gradient_that_is_no_number_is_skipped_aloud(tmp_path, capsys):
    trainer = build_trainer(small_config(tmp_path, *SAVED))
    assert trainer is not None
    lost_gradients(2)(trainer)
    trainer.fit()
    run = Run(tmp_path)
    assert [row.get("actor/skipped_steps", 0) > 0 for row in run.metrics.values()] == [False, False, True, False]
    assert "warning: step 2 skipped " in capsys.readouterr().err
    assert run.status["state"] == "finished"


def test_no_finite_gradient_in_three_updates_stops_the_run(tmp_path):
    message = fit_with(tmp_path, spoil=lost_gradients(1, 2, 3))
    assert "No gradient of the actor was finite in 3 updates in a row, up to step 3" in message
