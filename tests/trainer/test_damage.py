"""Weights that are no numbers, and files that are not as they were written: neither is trained on, saved or played."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ragen.cli import main
from ragen.errors import ConfigError, NotFinite
from ragen.modeling.finite import non_finite
from ragen.trainer.build import build_trainer
from ragen.trainer.checksums import CHECKSUMS, verify
from tests.trainer.runs import Run, small_config, train

GRPO = "algorithm.adv_estimator=grpo"
SAVED = [GRPO, "trainer.total_training_steps=3", "trainer.save_freq=1"]
EVAL = ["es_manager.val.env_groups=4", "--mode", "sampled", "--no-reference"]


def test_nan_and_infinity_are_found_by_name():
    tensors = {"a": torch.ones(2), "b": torch.tensor([1.0, torch.nan]), "c": torch.tensor([-torch.inf]).bfloat16()}
    assert non_finite(tensors | {"ids": torch.ones(2, dtype=torch.int64), "none": torch.empty(0)}) == ["b", "c"]
    assert non_finite({}) == []


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


# --- damaged files


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Run:
    return train(tmp_path_factory.mktemp("saved") / "run", *SAVED, "trainer.max_actor_ckpt_to_keep=null")


@pytest.fixture
def run(saved, tmp_path) -> Run:
    return Run(shutil.copytree(saved.path, tmp_path / "run"))


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


DAMAGE = {
    "a flipped bit": (lambda path: flip(path), r"model.safetensors is not what was written \(SHA-256\)"),
    "a cut end": (lambda path: path.write_bytes(path.read_bytes()[:-1]), "model.safetensors has [0-9]+ bytes, "),
    "no file": (lambda path: path.unlink(), "model.safetensors is missing"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_checkpoint_is_refused_with_the_whole_one_before_it(run, kind):
    damage, message = DAMAGE[kind]
    damage(run.path / "global_step_3" / "actor" / "model.safetensors")
    before = (run.path / "config.yaml").stat().st_mtime_ns
    with pytest.raises(ConfigError, match=message) as caught:
        build_trainer(small_config(run.path, *SAVED, "trainer.total_training_steps=4"))
    assert f"trainer.resume_from_path={run.path / 'global_step_2'}" in str(caught.value)
    assert (run.path / "config.yaml").stat().st_mtime_ns == before


def test_where_all_are_damaged_the_message_says_so(run):
    for step in (1, 2, 3):
        flip(run.path / f"global_step_{step}" / "actor" / "optimizer.safetensors")
    with pytest.raises(ConfigError, match=r"There is no whole one before it; trainer.resume_mode=disable starts over"):
        verify(run.path / "global_step_3")


def test_a_checkpoint_without_checksums_still_opens_and_a_rotated_role_is_not_missed(run):
    (run.path / "global_step_3" / CHECKSUMS).unlink()
    flip(run.path / "global_step_3" / "actor" / "optimizer.safetensors")
    verify(run.path / "global_step_3")
    shutil.rmtree(run.path / "global_step_2" / "actor")
    verify(run.path / "global_step_2")
    assert set(json.loads((run.path / "global_step_1" / CHECKSUMS).read_text())) >= {
        "actor/model.safetensors",
        "actor/optimizer.safetensors",
        "trainer_state.json",
    }


def test_damaged_checksums_are_an_error_in_words(run):
    for content in ("{", "[1]", '{"a": 3}'):
        (run.path / "global_step_3" / CHECKSUMS).write_text(content)
        with pytest.raises(ConfigError, match=r"checksums.json is damaged"):
            verify(run.path / "global_step_3")


def test_an_evaluation_refuses_damaged_and_broken_weights(run, tmp_path, capsys):
    actor = run.path / "global_step_3" / "actor"
    flip(actor / "model.safetensors")
    assert main(["eval", str(actor), *EVAL, "--out", str(tmp_path / "a")]) == 1
    assert "model.safetensors is not what was written" in capsys.readouterr().err
    weights = load_file(actor / "model.safetensors")
    name = sorted(weights)[0]
    weights[name].view(-1)[0] = torch.nan
    save_file(weights, actor / "model.safetensors", metadata={"format": "pt"})
    (run.path / "global_step_3" / CHECKSUMS).unlink()
    assert main(["eval", str(actor), *EVAL, "--out", str(tmp_path / "b")]) == 1
    assert f"tensors hold NaN or infinity, the first is {name}" in capsys.readouterr().err


def test_the_best_checkpoint_can_be_evaluated_with_other_numbers_of_levels(run, tmp_path, capsys):
    assert main(["eval", str(run.path), "--best", *EVAL, "--out", str(tmp_path / "a")]) == 1
    assert "names no best checkpoint" in capsys.readouterr().err
    (run.path / "best_checkpointed_iteration.txt").write_text("2\n")
    options = [*EVAL[1:], "es_manager.val.env_groups=3", "--out", str(tmp_path / "b")]
    assert main(["eval", str(run.path), "--best", *options]) == 0
    output = "".join(capsys.readouterr().out.split())
    assert "3levelsx1" in output and "global_step_2/actor" in output
