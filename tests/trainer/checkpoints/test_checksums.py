"""Files of a checkpoint that are not as they were written are neither trained on nor played."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ragen.cli import main
from ragen.errors import ConfigError
from ragen.trainer.build import build_trainer
from ragen.trainer.checkpoints.checksums import CHECKSUMS, verify
from tests.trainer.runs import Run, small_config, train

GRPO = "algorithm.adv_estimator=grpo"
SAVED = [GRPO, "trainer.total_training_steps=3", "trainer.save_freq=1"]
EVAL = ["es_manager.val.env_groups=4", "--mode", "sampled", "--no-reference"]


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
