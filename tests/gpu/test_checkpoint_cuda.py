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


def test_what_is_written_beside_training_is_what_a_waiting_run_writes(tmp_path):
    def saved(name: str, *, is_background: bool) -> dict[str, bytes]:
        root = tmp_path / name
        changes = [
            "algorithm.adv_estimator=gae",
            "seed.train=3",
            "trainer.total_training_steps=2",
            "trainer.save_freq=1",
        ]
        keep = [
            "trainer.max_actor_ckpt_to_keep=null",
            "es_manager.val.env_groups=4",
            f"trainer.default_local_dir={root}",
        ]
        trainer = build_trainer(load_config("quickstart", [*changes, *keep]))
        assert trainer is not None
        if not is_background:
            trainer.checkpoints.prepare = lambda: None
        trainer.fit()
        assert trainer.checkpoints.is_background is is_background
        folder = root / "global_step_1" / "actor"
        return {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}

    assert saved("beside", is_background=True).keys() == saved("waiting", is_background=False).keys()
