"""Validation tells the levels that training has played from those it has not."""

import json
import shutil

import pytest

from ragen.config import load_config
from ragen.errors import FileError
from ragen.llm_agent.es_manager import EsManager, level_hash
from ragen.models.resolve import resolve_model
from ragen.tracking.glossary import unknown
from ragen.tracking.rundir import read_metrics
from ragen.trainer.held_out import FILE, PlayedLevels, held_out_metrics, levels_behind
from ragen.types import Episode, Status
from tests.trainer.runs import LAKE, train

GRPO = "algorithm.adv_estimator=grpo"


def levels(tag: str, seeds: range, *changes: str, member: int = 0) -> list[str]:
    """The contents of the levels of a tag."""
    config = load_config("base", [f"es_manager.train.env_configs.tags=[{tag}]", *changes])
    environments = EsManager(config.es_manager.train, config.custom_envs)
    seat = environments.seats[member]
    found = []
    for seed in seeds:
        seat.reset(seed)
        assert not seat.error
        found.append(seat.level)
    environments.close()
    return found


def test_the_bandit_has_24_contents_and_its_test_shares_none():
    train_names, test_names = set(levels("Bandit", range(500))), set(levels("BanditTest", range(500)))
    assert (len(train_names), len(test_names)) == (24, 16)
    assert not train_names & test_names


@pytest.mark.parametrize("tag", ["Bandit", "FrozenLake", "CoordSokoban"])
def test_members_share_the_content_of_their_level(tag):
    assert levels(tag, range(20), member=0) == levels(tag, range(20), member=1)


@pytest.mark.parametrize(("one", "other"), [("FrozenLake", "CoordFrozenLake")])
def test_the_same_lake_in_another_form_is_the_same_level(one, other):
    assert levels(one, range(20)) == levels(other, range(20))


def test_any_text_is_a_content():
    assert level_hash("gym", "a\ud800") != level_hash("gym", "a") != level_hash("lake", "a")
    assert len(level_hash("gym", "x" * 10**6)) == 16


def test_two_lakes_of_one_content_count_as_one():
    found = levels("FrozenLake", range(400))
    assert 100 < len(set(found)) < 400


def episode(group_id: int, level: str, status: Status, tag: str = "A") -> Episode:
    return Episode(tag=tag, env_type="x", group_id=group_id, member=0, seed=group_id, level=level, status=status)


def test_success_and_count_are_split_by_what_was_played():
    played = PlayedLevels()
    played.add(["a1", ""])
    found = [
        episode(0, "a1", Status.SOLVED),
        episode(1, "a1", Status.SOLVED),
        episode(2, "b2", Status.SOLVED),
        episode(3, "c3", Status.FAILED),
        episode(3, "c3", Status.FAILED),
        episode(4, "", Status.ENV_ERROR),
        episode(5, "d4", Status.FAILED, tag="B"),
    ]
    metrics = held_out_metrics(found, played)
    assert metrics["A/success_unseen_low"] < 1 / 3 < metrics["A/success_unseen_high"]
    assert {name: value for name, value in metrics.items() if not name.endswith(("_low", "_high"))} == {
        "A/levels_unseen": 2,
        "A/success_unseen": pytest.approx(1 / 3),
        "A/levels_seen": 2,
        "A/success_seen": 1,
        "B/levels_unseen": 1,
        "B/success_unseen": 0,
        "B/levels_seen": 0,
    }


def test_played_levels_survive_a_checkpoint():
    played, again = PlayedLevels(), PlayedLevels()
    played.hashes = dict.fromkeys((5, 0, 2**64 - 1))
    again.load(json.loads(json.dumps(played.to_json())))
    assert list(again.hashes) == list(played.hashes)
    assert len(played.to_json() or "") == 32


def test_what_had_been_played_at_an_earlier_moment_is_known_later():
    played, before = PlayedLevels(), PlayedLevels()
    played.add(["a1", "b2"])
    count = len(played)
    played.add(["00", "a1"])
    before.load(played.to_json(count))
    assert (count, len(played), list(before.hashes)) == (2, 3, [0xA1, 0xB2])


def test_no_level_is_called_unseen_after_training_that_is_not_known():
    played = PlayedLevels()
    played.load(None)
    assert held_out_metrics([episode(0, "a1", Status.SOLVED)], played) == {}
    assert played.to_json() is None


def test_a_checkpoint_of_weights_only_does_not_say_what_was_played(tmp_path):
    contents = "actor_rollout_ref.actor.checkpoint.save_contents=[model]"
    run = train(tmp_path / "run", GRPO, contents, "trainer.total_training_steps=1", "trainer.save_freq=1")
    resume = [f"trainer.resume_from_path={run.path / 'global_step_1'}", "trainer.resume_mode=resume_path"]
    validation = train(tmp_path / "validation", GRPO, contents, *resume, "trainer.val_only=True")
    row = read_metrics(validation.path / "validation_of_step_1")[0]
    assert "val-env/Bandit/success" in row and "val-env/Bandit/success_unseen" not in row


def test_a_run_logs_success_on_seen_and_unseen_levels(tmp_path):
    small = [
        "+custom_envs.FrozenLake.env_config.size=2",
        "+custom_envs.FrozenLake.env_config.p=1",
    ]  # twelve lakes in all
    more = ["es_manager.val.env_groups=12", "trainer.val_greedy=True", "trainer.test_freq=1"]
    run = train(tmp_path, GRPO, *small, *more, env=LAKE)
    assert not unknown(run.metrics[2])
    assert run.metrics[0]["val-env/FrozenLake/levels_seen"] == 0
    assert run.metrics[0]["val-env/FrozenLake/success_unseen"] == run.metrics[0]["val-env/FrozenLake/success"]
    trained = {e.level for step in (1, 2) for e in run.episodes(step)}
    for prefix in ("val-env", "val-env-greedy"):
        seen = [e for e in run.episodes(2, "val") if e.level in trained]
        assert run.metrics[2][f"{prefix}/FrozenLake/levels_seen"] == len({e.group_id for e in seen}) > 0
        assert run.metrics[2][f"{prefix}/FrozenLake/levels_unseen"] == 12 - len({e.group_id for e in seen})
    assert run.metrics[1]["val-env/FrozenLake/levels_seen"] <= run.metrics[2]["val-env/FrozenLake/levels_seen"]


def test_a_model_names_the_levels_of_its_demonstrations(tmp_path):
    played = PlayedLevels()
    played.add(["a1", "b2"])
    played.write(tmp_path)
    assert list(levels_behind(tmp_path).hashes) == [0xA1, 0xB2]
    assert len(levels_behind("Qwen/Qwen2.5-0.5B-Instruct")) == 0
    for damaged in ('{"levels": 7}', '{"levels": "not base64!"}', "{}", "[]", '{"levels": "AAAA'):
        (tmp_path / FILE).write_text(damaged)
        with pytest.raises(FileError, match=FILE):
            levels_behind(tmp_path)


def test_training_takes_over_what_its_model_was_trained_on(tmp_path):
    model = shutil.copytree(resolve_model("tiny/frozen_lake"), tmp_path / "model")
    played = PlayedLevels()
    played.add(levels("FrozenLake", range(123, 126)))
    played.write(model)
    more = ["es_manager.val.env_groups=8", "trainer.total_training_steps=1", "trainer.save_freq=1"]
    run = train(tmp_path / "run", GRPO, f"model_path={model}", *more, env=LAKE)
    demonstrated, validated = set(levels("FrozenLake", range(123, 126))), levels("FrozenLake", range(123, 131))
    assert run.metrics[0]["val-env/FrozenLake/levels_seen"] == sum(level in demonstrated for level in validated) >= 3

    of_checkpoint = levels_behind(run.path / "global_step_1" / "actor")
    trained = {int(e.level, 16) for e in run.episodes(1)}
    assert set(of_checkpoint.hashes) == trained | set(played.hashes)


@pytest.mark.parametrize(
    ("family", "tag"), [("bandit", "Bandit"), ("frozen_lake", "FrozenLake"), ("sokoban", "CoordSokoban")]
)
def test_the_embedded_models_name_the_levels_of_their_demonstrations(family, tag):
    played = levels_behind(resolve_model(f"tiny/{family}"))
    assert {int(level, 16) for level in levels(tag, range(1_000_000, 1_000_020))} <= set(played.hashes)
