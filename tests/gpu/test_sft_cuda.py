"""Supervised training on a GPU: bfloat16 weights, float32 copies, packed flash attention."""

import pytest
import torch

from ragen.modeling.load import load_model
from ragen.sft.command import run_sft
from ragen.sft.config import load_sft
from ragen.tracking.rundir import read_metrics, read_status

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.mark.parametrize(("rank", "lr"), [(0, "3e-4"), (8, "1e-2")])
def test_a_run_learns_and_its_model_plays(rank, lr, tmp_path):
    config, sft = load_sft(
        "quickstart",
        [
            "trainer.logger=[]",
            "model_path=tiny/sokoban",  # lakes are new to it
            f"lora.rank={rank}",
            "lora.alpha=8",
            "es_manager.val.env_groups=16",
            f"sft.output_dir={tmp_path}",
            "sft.train_size=64",
            "sft.val_size=32",
            "sft.epochs=3",
            "sft.batch_size=32",
            f"sft.optim.lr={lr}",
        ],
    )
    merged = run_sft(config, sft)
    losses = [record["sft/val_loss"] for record in read_metrics(tmp_path) if "sft/val_loss" in record]
    assert len(losses) == 4
    assert losses[-1] < losses[1] < losses[0]
    assert load_model(merged).dtype == torch.bfloat16
    assert read_status(tmp_path / "validation")["state"] == "finished"
