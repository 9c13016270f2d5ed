"""The legacy command line: merge order, value rules, and errors that name the modern key."""

import re
import shlex
from pathlib import Path

import pytest

from ragen.config import load_config
from ragen.errors import ConfigError
from ragen.legacy.__main__ import main
from ragen.legacy.settings import LEGACY_DIR, flatten, parse_value, read_settings, read_yaml
from ragen.legacy.table import TABLE, to_markdown
from ragen.legacy.translate import to_override, translate
from ragen.sft.config import load_sft

ROOT = Path(__file__).parents[2]


def modern(env: str, *arguments: str, variables: dict[str, str] | None = None):
    """The normal configuration that a legacy command means."""
    changes = translate(read_settings(env, arguments, variables or {}))
    return load_config("base", [c.override for c in changes if not c.override.startswith("sft.")])


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("False", False), ("5", 5), ("0.7", 0.7), ("", None), ("1e-6", "1e-6"), ("a/b", "a/b")],
)
def test_values_are_read_by_the_legacy_rules(text, value):
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


def test_files_then_variables_then_arguments():
    variables = {"CONFIG_TRAINING__MAX_TURNS": "3", "CONFIG_OPTIMIZATION__ACTOR_LR": "1e-5", "HOME": "/x"}
    settings = read_settings("sokoban", ["training.max_turns=4", "ignored word"], variables)
    assert settings["training.max_turns"] == 4
    assert settings["optimization.actor_lr"] == 1e-5
    assert settings["training.n_rollout"] == 16
    assert settings.env_config["search_depth"] == 30


def test_every_key_with_a_default_has_a_row_and_every_row_a_default():
    defaults = flatten(read_yaml(LEGACY_DIR / "base.yaml"))
    for env in ("sokoban", "frozenlake", "two_armed_bandit"):
        names = flatten(read_yaml(LEGACY_DIR / f"{env}.yaml"))
        defaults |= {key: value for key, value in names.items() if key in TABLE}
    assert set(defaults) == set(TABLE)


def test_defaults_of_every_environment_are_a_valid_configuration():
    for env, tag in (
        ("sokoban", "SimpleSokoban"),
        ("frozenlake", "FrozenLake"),
        ("two_armed_bandit", "TwoArmedBandit"),
    ):
        config = modern(env)
        assert config.es_manager.train.env_configs.tags == config.es_manager.val.env_configs.tags == (tag,)
        assert (config.es_manager.train.env_groups, config.es_manager.train.group_size) == (8, 16)
        assert config.trainer.total_training_steps == 5 * 10_000 // 8
        assert config.actor_rollout_ref.rollout.max_model_len == 400 + 5 * 600
        assert config.agent_proxy.max_actions_per_turn == 1


def test_every_epoch_drops_its_incomplete_batch():
    """10000 levels are 312 batches of 32: five epochs are 1560 steps, not 50000 // 32 = 1562."""
    config = modern("sokoban", "training.train_batch_size=32", "training.ppo_batch_size=32")
    assert config.trainer.total_training_steps == 1560


def test_batches_turns_and_the_estimator_mean_what_they_meant():
    config = modern(
        "frozenlake",
        "training.train_batch_size=4",
        "training.n_rollout=8",
        "training.ppo_batch_size=32",
        "training.micro_batch_size=4",
        "training.max_turns=7",
        "training.no_think_rl=True",
        "optimization.adv_estimator=brpo",
        "training.val_data_num=",
        "training.val_batch_size=10",
    )
    assert (config.es_manager.train.env_groups, config.es_manager.train.group_size) == (4, 8)
    assert (config.es_manager.val.env_groups, config.es_manager.val.group_size) == (500, 8)
    assert config.actor_rollout_ref.actor.ppo_mini_batch_size == 32
    assert config.actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu == 4
    assert config.actor_rollout_ref.rollout.max_num_seqs == 80
    assert config.agent_proxy.max_turn == config.custom_envs["FrozenLake"].max_actions_per_traj == 7
    assert not config.agent_proxy.enable_think
    assert config.algorithm.adv_estimator == "brpo"
    assert config.custom_envs["FrozenLake"].env_config == {"success_rate": 0.8, "size": 4, "p": 0.8}


def test_the_kl_is_a_penalty_in_the_loss_or_in_the_reward():
    in_loss, in_reward = modern("sokoban"), modern("sokoban", "training.use_kl_loss=False", "optimization.kl_coef=0.5")
    assert (in_loss.actor_rollout_ref.actor.use_kl_loss, in_loss.algorithm.use_kl_in_reward) == (True, False)
    assert in_loss.actor_rollout_ref.actor.kl_loss_coef == 0.001
    assert (in_reward.actor_rollout_ref.actor.use_kl_loss, in_reward.algorithm.use_kl_in_reward) == (False, True)
    assert in_reward.algorithm.kl_ctrl.kl_coef == 0.5


def test_validation_arms_of_other_names_are_a_tag_of_their_own():
    config = modern("two_armed_bandit", "env.low_risk_val_name=dragon", "env.high_risk_val_name=phoenix")
    assert config.es_manager.train.env_configs.tags == ("TwoArmedBandit",)
    assert config.es_manager.val.env_configs.tags == ("TwoArmedBanditVal",)
    train, val = config.custom_envs["TwoArmedBandit"], config.custom_envs["TwoArmedBanditVal"]
    assert train.env_config == {"low_risk_name": "phoenix", "high_risk_name": "dragon"}
    assert val.env_config == {"low_risk_name": "dragon", "high_risk_name": "phoenix"}
    assert val.env_instruction == train.env_instruction
    assert config.es_manager.format_penalty == 0


def test_two_gpus_get_two_ids_and_share_the_micro_batch():
    config = modern("sokoban", "system.n_gpus=2", "training.micro_batch_size=4")
    assert (config.trainer.n_gpus_per_node, config.system.CUDA_VISIBLE_DEVICES) == (2, "0,1")
    assert config.micro_batch_size_per_gpu == 2


@pytest.mark.parametrize("key", ["system.n_gpus", "sft.training.num_gpus"])
def test_supervised_training_counts_its_own_gpus_or_those_of_the_system(key):
    changes = [change.override for change in translate(read_settings("sokoban", ["rl_or_sft=sft", f"{key}=2"], {}))]
    config, _ = load_sft("base", changes)
    assert (config.trainer.n_gpus_per_node, config.system.CUDA_VISIBLE_DEVICES) == (2, "0,1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["training.max_turn=3"], "training.max_turns (now agent_proxy.max_turn"),
        (["max_turns=3"], "training.max_turns"),
        (["agent_proxy.max_turn=3"], "training.max_turns (now agent_proxy.max_turn"),
        (["algorithm.adv_estimator=grpo"], "optimization.adv_estimator (now algorithm.adv_estimator)"),
        (["training.use_sft=true"], "training.use_sft=True: no longer a setting"),
        (["system.multi_processing=spawn"], "trainer.n_gpus_per_node"),
        (["sft.sokoban.dim_x=7"], "set env.dim_x"),
        (["training.max_turns=many"], "agent_proxy.max_turn"),
        (["training.max_turns="], "the value is empty"),
        (["training.n_rollout=1"], "Set training.ppo_batch_size=8 or less"),
        (["rl_or_sft=both"], "choose rl or sft"),
        (["sft.training.epochs=2"], "Add rl_or_sft=sft"),
        (["optimization.adv_estimator=magic"], "algorithm.adv_estimator: 'magic'"),
    ],
)
def test_a_wrong_setting_is_an_error_that_names_the_way_out(arguments, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        modern("sokoban", *arguments)


def test_an_unknown_environment_lists_those_there_are(capsys):
    assert main(["sokobann"]) == 1
    assert "Did you mean sokoban?" in capsys.readouterr().err


def test_an_option_of_the_environment_reaches_it():
    boxes = modern("sokoban", "env.num_boxes=2").custom_envs["SimpleSokoban"].env_config
    assert boxes is not None and boxes["num_boxes"] == 2
    lake = modern("frozenlake", "env.success_rate=0.5").custom_envs["FrozenLake"].env_config
    assert lake is not None and lake["success_rate"] == 0.5


def test_show_prints_what_each_key_became_and_the_modern_command(capsys):
    assert main(["sokoban", "--show", "training.max_turns=3", "model.base_model=tiny"]) == 0
    out = capsys.readouterr().out
    assert "# training.max_turns=3  ->  agent_proxy.max_turn=3, custom_envs.SimpleSokoban.max_actions_per_traj=3" in out
    command = shlex.split(out[out.index("python train.py") :].replace("\\\n", " "))
    config = load_config("base", command[2:])
    assert config.model_path == "tiny"
    assert config.agent_proxy.max_turn == 3


def test_texts_are_quoted_where_the_loader_needs_it():
    assert to_override("a", "Qwen/Qwen2.5-3B-Instruct") == "a=Qwen/Qwen2.5-3B-Instruct"
    assert to_override("a", "0,1") == "a='0,1'"
    assert to_override("a", "it's true") == r"a='it\'s true'"
    assert to_override("a", "true") == "a='true'"
    assert to_override("a", ["x", True, 1.5, None]) == "a=[x,True,1.5,null]"


def test_the_page_shows_the_table():
    page = (ROOT / "docs" / "legacy.md").read_text()
    assert to_markdown() in page, "run: python -c 'from ragen.legacy.table import to_markdown; print(to_markdown())'"
