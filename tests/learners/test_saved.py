"""What a checkpoint holds of a learner."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from ragen.learners.actor import Actor
from ragen.learners.host_copies import HostCopies
from ragen.modeling.load import load_tokenizer
from ragen.models.resolve import resolve_model
from tests.engine.families import random_model
from tests.learners.batches import actor_config, random_batch


@pytest.fixture
def tokenizer():
    return load_tokenizer(resolve_model("tiny", env_types=["bandit"]))


def trained_actor() -> Actor:
    actor = Actor(random_model("qwen2"), actor_config(), temperature=1.0, total_steps=10)
    actor.train_on(random_batch(4), step=1)
    return actor


def shapes(tensors) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}


def files(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_an_update_after_the_copy_does_not_change_what_is_written(tmp_path, tokenizer):
    actor = trained_actor()
    (tmp_path / "before").mkdir()
    actor.save(tmp_path / "before", tokenizer)
    saved = actor.saved(tokenizer)
    assert saved is not None
    copied = saved.copied("actor", HostCopies(actor.device))
    actor.train_on(random_batch(4), step=2)
    (tmp_path / "copied").mkdir()
    copied.write(tmp_path / "copied")
    (tmp_path / "after").mkdir()
    actor.save(tmp_path / "after", tokenizer)
    before, written, after = (files(tmp_path / name) for name in ("before", "copied", "after"))
    assert written == before
    assert after["model.safetensors"] != before["model.safetensors"]
    assert after["optimizer.safetensors"] != before["optimizer.safetensors"]


def test_what_is_reserved_is_what_is_copied(tokenizer):
    actor = Actor(random_model("qwen2"), actor_config(), temperature=1.0, total_steps=10)
    later = actor.saved_later(tokenizer).tensors("actor")
    actor.train_on(random_batch(4), step=1)
    saved = actor.saved(tokenizer)
    assert saved is not None
    now = saved.tensors("actor")
    assert shapes(later) == shapes(now)
    copies = HostCopies(actor.device)
    assert copies.num_missing_bytes(later) == copies.num_missing_bytes(now) > 0
    copies.copy(now)
    assert copies.num_missing_bytes(later) == 0


def test_an_optimizer_that_is_not_wanted_is_not_written(tmp_path, tokenizer):
    saved = trained_actor().saved(tokenizer)
    assert saved is not None and saved.optimizer is not None
    saved.write(tmp_path)
    assert load_file(tmp_path / "optimizer.safetensors").keys() == saved.optimizer.keys()
    replace(saved, optimizer=None).write(tmp_path / "weights")
    assert not (tmp_path / "weights" / "optimizer.safetensors").exists()
