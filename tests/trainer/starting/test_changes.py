"""A run is continued with its own settings, but for what may change."""

import json
import shutil

import pytest
import yaml

from ragen.errors import ConfigError
from ragen.trainer.checkpoints.checksums import CHECKSUMS, Settled
from ragen.trainer.starting.changes import changes_since, compare
from ragen.trainer.starting.start import plan_start
from tests.trainer.runs import BANDIT, Run, refused, small_config, snapshot, train

GRPO = "algorithm.adv_estimator=grpo"


def settings(**leaves: object) -> dict:
    tags = {"env_configs": {"tags": ["Bandit"]}}
    return {"es_manager": {"train": tags, "val": tags}, **leaves}


def test_only_what_both_versions_know_and_what_may_not_change_is_compared():
    before = settings(seed={"train": 1}, trainer={"save_freq": 1}, old=1, lora={"rank": 0})
    now = settings(seed={"train": None}, trainer={"save_freq": 2}, new=1, lora={"rank": 8})
    assert compare(before, now) == ["lora.rank: 0 -> 8"]


def test_options_of_a_played_environment_count_also_where_only_one_side_has_them():
    def envs(tag: str, **options: int) -> dict:
        return settings(custom_envs={tag: {"env_config": options}})

    assert compare(envs("Bandit"), envs("Bandit", arms=2)) == ["custom_envs.Bandit.env_config.arms: None -> 2"]
    assert compare(envs("Bandit", arms=2), envs("Bandit")) == ["custom_envs.Bandit.env_config.arms: 2 -> None"]
    assert compare(envs("Lake", size=2), envs("Lake", size=3)) == []


def test_a_configuration_that_cannot_be_read_is_named_with_a_way_out(tmp_path):
    assert changes_since(tmp_path, small_config(tmp_path)) == []
    (tmp_path / "config.yaml").write_text("a: [")
    with pytest.raises(ConfigError, match=r"config.yaml is not YAML.*Restore the file, or set trainer.resume_mode"):
        changes_since(tmp_path, small_config(tmp_path))


LEVELS = "; 1\n#####\n#@$.#\n#####\n\n; 2\n######\n#@ $.#\n######\n"
OTHERS = "; 1\n#####\n#@$.#\n#####\n\n; 2\n######\n#@$ .#\n######\n"


def test_a_file_of_levels_that_has_changed_is_noticed(tmp_path, capsys):
    """It continued in silence, on other levels."""
    file, root = tmp_path / "mine.xsb", tmp_path / "run"
    file.write_text(LEVELS)
    tags = [f"es_manager.{name}.env_configs.tags=[SokobanLevels]" for name in ("train", "val")]
    options = [f"custom_envs.SokobanLevels.env_config.{each}" for each in (f"levels_file={file}", "split=all")]
    env = (*tags, *options, "agent_proxy.max_turn=1", "actor_rollout_ref.rollout.max_model_len=2048")
    train(root, GRPO, "trainer.total_training_steps=1", env=env)
    file.write_text(LEVELS.replace("; 1", "; the first"))
    plan_start(small_config(root, GRPO, "trainer.total_training_steps=1", env=env))  # a comment is no level
    file.write_text(OTHERS)
    message = refused(root, GRPO, env=env)
    key = "custom_envs.SokobanLevels.env_config.levels_file"
    assert f"{key}: the file has changed: 2 levels, hash " in message and "resume_with_changes=True" in message
    start = plan_start(small_config(root, GRPO, "trainer.resume_with_changes=True", env=env))
    assert start.step == 1 and any("the file has changed" in note for note in start.notes)


def test_settings_other_than_those_of_the_checkpoint_are_refused_with_a_list(tmp_path, capsys):
    train(tmp_path, GRPO)
    before = snapshot(tmp_path)
    changes = [
        "actor_rollout_ref.actor.optim.lr=5e-4",
        "es_manager.train.group_size=8",
        "agent_proxy.context_window_mode=single_turn",
        "trainer.total_training_steps=3",
    ]
    message = refused(tmp_path, GRPO, *changes, env=BANDIT)
    assert "actor_rollout_ref.actor.optim.lr: 0.001 -> 0.0005" in message
    assert "es_manager.train.group_size: 4 -> 8" in message
    assert "agent_proxy.context_window_mode: full -> single_turn" in message
    assert "trainer.resume_with_changes=True" in message and "total_training_steps" not in message
    assert snapshot(tmp_path) == before, "config.yaml and checkpoints are as they were"
    capsys.readouterr()
    train(tmp_path, GRPO, *changes[:1], *changes[3:], "trainer.resume_with_changes=True")
    output = capsys.readouterr().out
    assert f"Resuming from step 2 of {tmp_path}." in output
    assert (
        f"Settings that differ from those of {tmp_path}:\n  actor_rollout_ref.actor.optim.lr: 0.001 -> 0.0005" in output
    )


OTHER = ["seed.train=4", "algorithm.adv_estimator=rloo", "custom_envs.Bandit.max_actions_per_traj=7"]


@pytest.mark.parametrize("change", OTHER)
def test_a_run_is_not_continued_as_another_one(finished_bandit, change):
    assert change.split("=")[0] in refused(finished_bandit.path, GRPO, change, env=BANDIT)


@pytest.fixture(scope="module")
def finished_bandit(tmp_path_factory) -> Run:
    return train(tmp_path_factory.mktemp("bandit"), GRPO)


def test_length_cadence_logging_and_hardware_may_change(finished_bandit):
    changes = ["trainer.save_freq=1", "micro_batch_size_per_gpu=2", "trainer.logger=[console]", "trainer.test_freq=0"]
    changes += ["actor_rollout_ref.rollout.gpu_memory_utilization=0.5", "trainer.total_training_steps=9"]
    changes += ["custom_envs.CoordSokoban.max_actions_per_traj=7"]  # not played
    start = plan_start(small_config(finished_bandit.path, GRPO, *changes))
    assert start.step == 2
    assert start.notes == (f"Resuming from step 2 of {finished_bandit.path}.",)


def test_a_run_of_a_version_without_a_key_of_the_environments_is_continued(finished_bandit, tmp_path):
    run = shutil.copytree(finished_bandit.path, tmp_path / "run")
    settings = yaml.safe_load((run / "config.yaml").read_text())
    for tag in settings["custom_envs"].values():
        del tag["step_timeout"]
    (run / "config.yaml").write_text(yaml.safe_dump(settings))
    start = plan_start(small_config(run, GRPO, "trainer.total_training_steps=3"))
    assert start.step == 2
    option = "+custom_envs.Bandit.env_config.action_space_start=2"
    assert "env_config.action_space_start: None -> 2" in refused(run, GRPO, option, env=BANDIT)


def test_a_run_from_before_the_example_answer_is_continued_without_it(finished_bandit, tmp_path):
    run = shutil.copytree(finished_bandit.path, tmp_path / "run")
    settings = yaml.safe_load((run / "config.yaml").read_text())
    del settings["agent_proxy"]["example_answer"]
    (run / "config.yaml").write_text(yaml.safe_dump(settings))
    message = refused(run, GRPO, "agent_proxy.example_answer=True", env=BANDIT)
    assert "agent_proxy.example_answer: False -> True (older than this key: agent_proxy.example_answer=False" in message
    longer = ["agent_proxy.example_answer=False", "trainer.total_training_steps=3"]
    assert plan_start(small_config(run, GRPO, *longer)).step == 2


def test_by_path_other_settings_are_printed_and_accepted(finished_bandit, tmp_path, capsys):
    path = f"trainer.resume_from_path={finished_bandit.path / 'global_step_2'}"
    changes = ["seed.train=4", "trainer.total_training_steps=3", "trainer.resume_mode=resume_path", path]
    assert list(train(tmp_path, GRPO, *changes).metrics) == [3]
    assert "\n  seed.train: 10000 -> 4\n" in capsys.readouterr().out


def test_a_run_from_before_levels_were_chosen_is_continued_with_fresh_ones(finished_bandit, tmp_path):
    run = shutil.copytree(finished_bandit.path, tmp_path / "run")
    settings = yaml.safe_load((run / "config.yaml").read_text())
    for key in ("levels", "level_pool", "refill"):
        del settings["es_manager"]["train"][key]
    (run / "config.yaml").write_text(yaml.safe_dump(settings))
    path = run / "global_step_2" / "trainer_state.json"
    state = json.loads(path.read_text())
    del state["levels"]
    path.write_text(json.dumps(state))
    (path.parent / CHECKSUMS).unlink()
    with Settled(path.parent) as settled:
        settled.write()
    message = refused(run, GRPO, "es_manager.train.levels=pool", "trainer.total_training_steps=3", env=BANDIT)
    assert "es_manager.train.levels: fresh -> pool (older than this key" in message
    assert [e.seed for e in train(run, GRPO, "trainer.total_training_steps=3").episodes(3)][::4] == [
        10006,
        10007,
        10008,
    ]
