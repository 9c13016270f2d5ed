"""What a trainer saves, by role."""

from pathlib import Path
from types import SimpleNamespace

from ragen.workers.base import savers, saves_all
from tests.trainer.runs import small_config


def test_every_trained_role_is_saved_by_its_name(tmp_path):
    saved: list[tuple[str, Path]] = []
    for estimator, roles in (("gae", ["actor", "critic"]), ("grpo", ["actor"])):
        config = small_config(tmp_path, f"algorithm.adv_estimator={estimator}")
        workers = SimpleNamespace(config=config, save=lambda role, folder: saved.append((role, folder)))
        found = savers(workers)
        assert list(found) == roles
        found["actor"](tmp_path)
    assert saved == [("actor", tmp_path)] * 2


def test_a_checkpoint_without_optimizer_cannot_be_resumed_from(tmp_path):
    contents = "actor_rollout_ref.actor.checkpoint.save_contents"
    for change, expected in (([], True), ([f"{contents}=[model]"], False)):
        assert saves_all(SimpleNamespace(config=small_config(tmp_path, *change))) is expected
