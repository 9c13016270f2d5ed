"""From a configuration to a trainer: seeds, models and what is shared."""

import json

import yaml

from ragen.trainer.build import build_trainer, update_notes, with_seed
from tests.engine.families import random_model
from tests.trainer.runs import small_config, train

ACTOR = "actor_rollout_ref.actor"
GRPO = "algorithm.adv_estimator=grpo"


def test_the_reference_is_loaded_only_when_a_kl_asks_for_it(tmp_path):
    without = build_trainer(small_config(tmp_path / "1"))
    with_kl = build_trainer(small_config(tmp_path / "2", f"{ACTOR}.use_kl_loss=True"))
    assert without is not None and without.workers.reference is None
    assert with_kl is not None and with_kl.workers.reference is not None
    assert not any(weight.requires_grad for weight in with_kl.workers.reference.model.parameters())


def test_the_training_seed_reaches_the_order_of_the_mini_batches(tmp_path):
    trainer = build_trainer(small_config(tmp_path, "seed.train=7"))
    assert trainer is not None
    assert [learner.seed for learner in trainer.workers.learners.values()] == [7, 7]
    trainer.workers.close()


def test_a_drawn_seed_is_written_down(tmp_path):
    run = train(tmp_path, GRPO, "seed.train=null")
    seed = yaml.safe_load((run.path / "config.yaml").read_text())["seed"]["train"]
    assert run.episodes(1)[0].seed == seed
    assert json.loads((run.path / "global_step_2" / "trainer_state.json").read_text())["train_seed"] == seed


def test_a_drawn_seed_keeps_clear_of_the_validation_levels(tmp_path):
    everywhere = ["seed.train=null", "seed.val=0", "es_manager.val.env_groups=1000000"]
    config = small_config(tmp_path, *everywhere)
    assert with_seed(config, None).seed.train == 1_000_000


def test_slower_updates_are_said_on_a_gpu():
    model = random_model("gemma2_soft_cap")
    assert update_notes(model, "cpu") == []
    assert update_notes(model, "cuda") == ["Updates run without fused layers: the family gemma2 is not described."]
