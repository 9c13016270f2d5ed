"""Copies of a GPU's tensors. Run there: pytest -q -m gpu tests/gpu"""

import pytest
import torch

from ragen.config import load_config
from ragen.learners.host_copies import SMALL, HostCopies
from ragen.trainer.build import build_trainer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_copies_are_pinned_and_are_those_of_their_moment():
    tensors = {"large": torch.rand(SMALL, device="cuda"), "small": torch.rand(7, dtype=torch.bfloat16, device="cuda")}
    expected = {name: tensor.cpu() for name, tensor in tensors.items()}
    copies = HostCopies(torch.device("cuda", 0))
    copies.reserve({name: torch.empty_like(tensor, device="meta") for name, tensor in tensors.items()})
    copied = copies.copy(tensors)
    for tensor in tensors.values():
        tensor.zero_()
    torch.cuda.synchronize()
    assert copies.num_unpinned == 0 and all(copy.is_pinned() for copy in copied.values())
    assert all(torch.equal(copied[name], expected[name]) for name in tensors)
    copies.close()


def test_a_snapshot_is_what_a_save_of_that_moment_writes(tmp_path):
    changes = ["algorithm.adv_estimator=gae", "trainer.total_training_steps=2", "trainer.save_freq=1"]
    run = ["es_manager.val.env_groups=4", f"trainer.default_local_dir={tmp_path / 'run'}"]
    trainer = build_trainer(load_config("quickstart", [*changes, *run]))
    assert trainer is not None
    trainer.fit()
    assert trainer.checkpoints.is_background
    workers = trainer.workers
    workers.reserve_snapshots()
    for role in ("actor", "critic"):
        saved, copied = tmp_path / f"saved_{role}", tmp_path / f"copied_{role}"
        saved.mkdir()
        workers.save(role, saved)
        write = workers.snapshot(role)
        with torch.no_grad():
            for weight in workers.learners[role].model.parameters():
                weight.zero_()
            for state in workers.learners[role].optimizer.adam.state.values():
                state["exp_avg"].zero_()
        copied.mkdir()
        write(copied)
        files = {path.name: path.read_bytes() for path in saved.iterdir()}
        assert "optimizer.safetensors" in files
        assert {path.name: path.read_bytes() for path in copied.iterdir()} == files
    workers.copies.close()
