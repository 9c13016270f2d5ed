"""Checkpoints: whole or not at all, plain Hugging Face folders, and only as many as asked for."""

import json
import os
import resource
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification, AutoTokenizer

from ragen.cli import main
from ragen.errors import ConfigError, FileError
from ragen.trainer.build import build_trainer
from ragen.trainer.checkpoints.checkpoint import LATEST, find_resume, name_best, rotate, save_checkpoint
from tests.trainer.runs import Run, small_config, train

GRPO = "algorithm.adv_estimator=grpo"
IDS = torch.tensor([[5, 6, 7, 8, 9, 10]])


# --- the folders of a run


@pytest.fixture(scope="module")
def ppo(tmp_path_factory) -> Run:
    return train(tmp_path_factory.mktemp("ppo"))


def test_actor_and_critic_open_with_from_pretrained(ppo):
    folder = ppo.path / "global_step_2"
    actor = AutoModelForCausalLM.from_pretrained(folder / "actor")
    critic = AutoModelForTokenClassification.from_pretrained(folder / "critic")
    assert actor(IDS).logits.shape[-1] == actor.config.vocab_size
    assert critic(IDS).logits.shape == (1, 6, 1)
    assert critic.state_dict()["score.weight"].abs().max() > 0  # the head started at zero
    for role in ("actor", "critic"):
        tokenizer = AutoTokenizer.from_pretrained(folder / role)
        assert tokenizer.chat_template


def test_the_saved_weights_are_those_that_were_trained(tmp_path):
    trainer = build_trainer(small_config(tmp_path, GRPO))
    assert trainer is not None
    trainer.fit()
    saved = AutoModelForCausalLM.from_pretrained(tmp_path / "global_step_2" / "actor", dtype=torch.float32).eval()
    with torch.no_grad():
        assert torch.equal(saved(IDS).logits, trainer.workers.actor.model(IDS).logits)


def test_a_checkpoint_with_adapters_holds_merged_weights(tmp_path):
    trainer = build_trainer(small_config(tmp_path, GRPO, "lora.rank=4", "actor_rollout_ref.actor.optim.lr=1e-2"))
    assert trainer is not None
    model = trainer.workers.actor.model
    before = model(IDS).logits.detach()
    trainer.fit()
    after = model(IDS).logits.detach()
    assert (after - before).abs().max() > 1e-3
    saved = AutoModelForCausalLM.from_pretrained(tmp_path / "global_step_2" / "actor", dtype=torch.float32).eval()
    assert not any("lora" in name for name in saved.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(saved(IDS).logits, after, atol=1e-4, rtol=1e-4)


def test_nothing_in_a_run_directory_is_a_pickle(ppo):
    suffixes = {path.suffix for path in ppo.path.rglob("*") if path.is_file()}
    assert suffixes <= {".safetensors", ".json", ".jsonl", ".gz", ".yaml", ".txt", ".jinja", ".png", ".md"}


def test_the_trainer_state_is_json(ppo):
    state = json.loads((ppo.path / "global_step_2" / "trainer_state.json").read_text())
    assert state["step"] == 2 and state["stop"] is None
    assert state["origin"] == {"model_path": "tiny/bandit", "critic.model.path": "tiny/bandit", "lora.rank": 0}
    assert state["metrics"]["train/Bandit/success"] == ppo.metrics[2]["train/Bandit/success"]


EVAL = ["es_manager.val.env_groups=4", "es_manager.train.env_configs.tags=[Bandit]", "agent_proxy.max_turn=1"]


def test_a_checkpoint_can_be_evaluated(ppo, tmp_path, capsys):
    short = ["actor_rollout_ref.rollout.response_length=48", "actor_rollout_ref.rollout.max_model_len=1024"]
    options = [*EVAL, *short, "--out", str(tmp_path), "--mode", "sampled", "--no-reference"]
    assert main(["eval", str(ppo.path / "global_step_2" / "actor"), *options]) == 0
    assert (tmp_path / "metrics.jsonl").exists()
    for above in (ppo.path / "global_step_2", ppo.path):
        capsys.readouterr()
        assert main(["eval", str(above), *options]) == 0
        assert f"Model: {ppo.path / 'global_step_2' / 'actor'}, the newest in {above}" in capsys.readouterr().out


# --- writing, naming and removing


def write_role(text: str):
    return lambda folder: (folder / "model.safetensors").write_text(text)


def save(root: Path, step: int, text: str = "weights", *, has_critic: bool = True) -> Path:
    roles = {"actor": write_role(text)} | ({"critic": write_role(text)} if has_critic else {})
    return save_checkpoint(root, step, roles, {"step": step})


def test_a_checkpoint_appears_whole_and_is_then_named(tmp_path):
    folder = save(tmp_path, 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["global_step_3", LATEST]
    assert (tmp_path / LATEST).read_text() == "3\n"
    assert find_resume("auto", None, tmp_path) == folder
    assert find_resume("disable", None, tmp_path) is None


def test_a_name_without_its_checkpoint_is_an_error_and_not_a_fresh_start(tmp_path):
    save(tmp_path, 3).rename(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match=r"names global_step_3, which is not there.*resume_mode=disable"):
        find_resume("auto", None, tmp_path)


def test_a_failure_while_writing_leaves_the_old_checkpoint_in_charge(tmp_path):
    save(tmp_path, 1)

    def fail(folder: Path) -> None:
        (folder / "half").write_text("of it")
        raise OSError("disk full")

    with pytest.raises(FileError, match=r"global_step_2 cannot be written: disk full"):
        save_checkpoint(tmp_path, 2, {"actor": fail}, {})
    assert find_resume("auto", None, tmp_path) == tmp_path / "global_step_1"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["global_step_1", LATEST]


def test_what_an_interrupted_save_left_behind_is_replaced(tmp_path):
    save(tmp_path, 2, "old")
    for leftover in (f".global_step_2.{os.getpid()}.tmp", f".outdated_2.{os.getpid()}.tmp"):
        (tmp_path / leftover / "actor").mkdir(parents=True)
        (tmp_path / leftover / "actor" / "half").write_text("of it")
    folder = save(tmp_path, 2, "new")
    assert (folder / "actor" / "model.safetensors").read_text() == "new" and not (folder / "actor" / "half").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["global_step_2", LATEST]


def test_a_step_that_is_reached_again_replaces_its_checkpoint(tmp_path):
    save(tmp_path, 2, "old")
    folder = save(tmp_path, 2, "new")
    assert (folder / "actor" / "model.safetensors").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["global_step_2", LATEST]


def kept(root: Path) -> dict[str, list[str]]:
    return {
        folder.name: sorted(path.name for path in folder.iterdir() if path.is_dir())
        for folder in sorted(root.glob("global_step_*"))
    }


def test_rotation_keeps_the_newest_of_each_role(tmp_path):
    for step in (2, 4, 10):
        save(tmp_path, step)
    rotate(tmp_path, {"actor": 1, "critic": 2}, latest=10)
    assert kept(tmp_path) == {"global_step_10": ["actor", "critic"], "global_step_4": ["critic"]}
    rotate(tmp_path, {"actor": 1, "critic": 1}, latest=10)
    assert kept(tmp_path) == {"global_step_10": ["actor", "critic"]}


def test_rotation_can_keep_everything(tmp_path):
    for step in (1, 2, 3):
        save(tmp_path, step)
    rotate(tmp_path, {"actor": None, "critic": None}, latest=3)
    assert len(kept(tmp_path)) == 3


def test_rotation_removes_the_higher_steps_of_a_former_run_first(tmp_path):
    for step in (9, 1, 2):
        save(tmp_path, step, has_critic=False)
    rotate(tmp_path, {"actor": 2, "critic": 2}, latest=2)
    assert list(kept(tmp_path)) == ["global_step_1", "global_step_2"]


def test_a_run_rotates_its_checkpoints(tmp_path):
    changes = ["trainer.total_training_steps=3", "trainer.save_freq=1", "trainer.max_actor_ckpt_to_keep=2"]
    train(tmp_path, *changes)
    assert kept(tmp_path) == {"global_step_2": ["actor"], "global_step_3": ["actor", "critic"]}


def test_only_a_step_folder_can_be_resumed_from(tmp_path):
    with pytest.raises(ConfigError, match="global_step_<N>"):
        find_resume("resume_path", str(tmp_path / "global_step_x"), tmp_path)


# --- the best one


def test_rotation_keeps_the_best_beside_the_newest(tmp_path):
    for step in (1, 2, 3):
        save(tmp_path, step)
    name_best(tmp_path, 1)
    rotate(tmp_path, {"actor": 1, "critic": 1}, latest=3)
    assert kept(tmp_path) == {"global_step_1": ["actor", "critic"], "global_step_3": ["actor", "critic"]}
    name_best(tmp_path, 3)
    rotate(tmp_path, {"actor": 1, "critic": 1}, latest=3)
    assert list(kept(tmp_path)) == ["global_step_3"]


def test_a_checkpoint_that_finds_no_room_leaves_the_earlier_ones(tmp_path):
    save_checkpoint(tmp_path, 1, {"actor": lambda folder: None}, {})
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)

    def write(folder: Path) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limit[1]))
        try:
            save_file({"a": torch.zeros(10_000)}, folder / "model.safetensors")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)

    with pytest.raises(FileError, match=r"global_step_2 cannot be written: .*Earlier checkpoints are whole"):
        save_checkpoint(tmp_path, 2, {"actor": write}, {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["global_step_1", "latest_checkpointed_iteration.txt"]
