"""The model card of a checkpoint."""

from pathlib import Path

import yaml

from ragen.config.load import load_config
from ragen.trainer.build import build_trainer
from ragen.trainer.card import CARD, model_card
from ragen.trainer.checkpoints.checkpoint import save_checkpoint
from ragen.trainer.checkpoints.checksums import read_checksums, verify
from tests.trainer.runs import small_config

VALIDATED = {
    "step": 8,
    "val-env/FrozenLake/success": 0.5,
    "val-env/FrozenLake/success_low": 0.4,
    "val-env/FrozenLake/success_high": 0.6,
}


def card(*changes: str, first=None, **metrics: float) -> str:
    config = load_config("quickstart", ["trainer.experiment_name=lake", *changes])
    return model_card(config, step=8, train_seed=77, metrics=metrics, first=first)


def header(text: str) -> dict:
    return yaml.safe_load(text.split("---")[1])


def test_results_have_intervals_before_and_after():
    before = {key: value - 0.25 if "/" in key else 0 for key, value in VALIDATED.items()}
    text = card(first=before, **VALIDATED)
    assert "| environment | replies | success, step 0 | success, step 8 |" in text
    assert "| FrozenLake | sampled | 0.25 [0.15, 0.35] | 0.50 [0.40, 0.60] |" in text


def test_a_step_without_validation_says_so():
    assert "Step 8 was not validated." in card()


def test_data_seeds_versions_and_the_missing_licence_are_told():
    text = card("seed.val=55")
    assert "in training from 77 on, in validation from 55 on" in text
    assert "| FrozenLake | frozen_lake | `{" in text
    assert "RAGEN 0" in text and "transformers 5" in text
    assert "Not known to the program" in text


def test_a_hub_reads_the_header():
    assert header(card("model_path=Qwen/Qwen2.5-0.5B-Instruct"))["base_model"] == "Qwen/Qwen2.5-0.5B-Instruct"
    found = header(card("model_path=tiny"))
    assert "base_model" not in found
    assert found["tags"] == ["ragen", "reinforcement-learning", "multi-turn", "FrozenLake"]
    assert "license" not in found  # nobody has said which


def test_no_path_of_the_machine_is_told():
    text = card("trainer.default_local_dir=/home/somebody/run", "model_path=/home/somebody/models/lake")
    assert "somebody" not in text
    assert "`lake`, trained for 8 steps" in text
    assert "trainer.test_freq: " in text


def test_a_card_lies_beside_the_weights_and_has_its_checksum(tmp_path):
    roles = {
        "actor": lambda folder: (folder / "w").write_text("1"),
        "critic": lambda folder: (folder / "w").write_text("2"),
    }
    folder = save_checkpoint(tmp_path, 1, roles, {}, cards={"actor": "# a card\n"})
    assert (folder / "actor" / CARD).read_text() == "# a card\n"
    assert not (folder / "critic" / CARD).exists()
    assert f"actor/{CARD}" in {entry.path for entry in read_checksums(folder)}
    verify(folder)


def test_a_run_writes_the_card_of_its_checkpoint(tmp_path):
    changes = ["algorithm.adv_estimator=grpo", "trainer.total_training_steps=1", "trainer.test_freq=1"]
    config = small_config(tmp_path, *changes, "trainer.save_freq=1")
    trainer = build_trainer(config)
    assert trainer is not None
    trainer.fit()
    folder = Path(config.trainer.default_local_dir) / "global_step_1"
    text = (folder / "actor" / CARD).read_text()
    assert ", step 1\n" in text
    assert str(tmp_path) not in text
    assert "| sampled |" in text
    verify(folder)
