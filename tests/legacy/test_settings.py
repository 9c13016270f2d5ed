"""The legacy command line: merge order, value rules, and errors that name the modern key."""

import re
import shlex
from pathlib import Path

import pytest

from ragen.config import load_config
from ragen.errors import ConfigError
from ragen.legacy.__main__ import main
from ragen.legacy.settings import parse_value, read_settings
from ragen.legacy.translate import translate

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


def test_show_prints_what_each_key_became_and_the_modern_command(capsys):
    assert main(["sokoban", "--show", "training.max_turns=3", "model.base_model=tiny"]) == 0
    out = capsys.readouterr().out
    assert "# training.max_turns=3  ->  agent_proxy.max_turn=3, custom_envs.SimpleSokoban.max_actions_per_traj=3" in out
    command = shlex.split(out[out.index("python train.py") :].replace("\\\n", " "))
    config = load_config("base", command[2:])
    assert config.model_path == "tiny"
    assert config.agent_proxy.max_turn == 3
