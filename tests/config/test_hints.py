"""A mistyped key is answered with the key that was meant."""

import pytest

from ragen.config import load_config
from ragen.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "overrides", "words"),
    [
        ("_2_sokobam", [], ["'_2_sokobam'", "Did you mean _2_sokoban?", "quickstart"]),
        ("base", ["trainer.test_freq"], ["trainer.test_freq", "key=value"]),
        ("base", ["system.CUDA_VISIBLE_DEVICES=0,1"], ["0,1", "comma", "\"'0,1'\"", "[0,1]"]),
        ("base", ["agent_proxy.action_sep=(,"], ["agent_proxy.action_sep", "'(,'", "\"'(,'\""]),
        ("base", ["trainer.test_frequ=5"], ["trainer.test_frequ", "Did you mean trainer.test_freq?"]),
        (
            "base",
            ["rollout_filter_value=0.9"],
            ["unknown key", "Did you mean actor_rollout_ref.rollout.rollout_filter_value?"],
        ),
        ("base", ["+trainer.tset_freq=5"], ["trainer.tset_freq", "Did you mean trainer.test_freq?"]),
        ("base", ["~trainer.test_freq"], ["missing trainer.test_freq"]),
        (
            "base",
            ["custom_envs.CoordSokoban.env_config.p=1"],
            ["custom_envs.CoordSokoban.env_config.p", "+custom_envs.CoordSokoban.env_config.p=1"],
        ),
        (
            "adapters",
            ["custom_envs.MiniGrid.env_config={env_id:CartPole-v1,action_names:[Left,Right]}"],
            ["env_config: there is no action_names yet", "merged", "write +custom_envs.MiniGrid.env_config={", "null"],
        ),
        # A field with a default: not a slip for one that the table writes out.
        (
            "base",
            ["custom_envs.Bandit.max_workers=4"],
            ["no such key yet. To add it to the table, write +custom_envs."],
        ),
        ("base", ["trainer.logger=console"], ["Write a list: trainer.logger=[console]."]),
        ("base", ["actor_rollout_ref.actor.optim.betas=0.9"], ["to a list of (a number, a number)"]),
        ("base", ["custom_envs.Countdwn.max_tokens=3"], ["Did you mean custom_envs.Countdown.max_tokens?"]),
        (
            "base",
            ["custom_envs.Countdown.env_config.max_numbr=3"],
            ["Did you mean custom_envs.Countdown.env_config.max_number?"],
        ),
        ("base", ["trainer={test_frequ:3}"], ["trainer.test_frequ: unknown key. Did you mean trainer.test_freq?"]),
        ("base", ["model_path=${nothing}"], ["nothing"]),
        ("base", ["hydra.run.dir=x"], ["hydra.run.dir=x", "no effect", "trainer.default_local_dir"]),
        ("base", ["+hydra/launcher=joblib"], ["+hydra/launcher=joblib", "no effect"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_a_mistyped_command_line_is_explained(name: str, overrides: list[str], words: list[str]):
    with pytest.raises(ConfigError) as caught:
        load_config(name, overrides)
    assert [word for word in words if word not in str(caught.value)] == [], caught.value


@pytest.mark.parametrize(
    "override",
    [
        "custom_envs.ReasoningGym.env_config.options.min_number=3",
        "custom_envs.MiniGrid.env_config={action_names:[Left]}",
        "foo=1",
    ],
)
def test_keys_that_are_far_or_of_another_environment_are_no_suggestions(override: str):
    with pytest.raises(ConfigError) as caught:
        load_config("adapters", [override])
    assert "Did you mean" not in str(caught.value), caught.value


@pytest.mark.parametrize("first", ["custom_envs.MiniGrid.env_config=null", "~custom_envs.MiniGrid.env_config"])
def test_a_mapping_is_merged_and_after_null_it_replaces(first: str):
    key = "custom_envs.MiniGrid.env_config"
    merged = load_config("adapters", [f"+{key}={{view:agent}}"]).custom_envs["MiniGrid"].env_config
    assert merged == {"env_id": "MiniGrid-DoorKey-6x6-v0", "view": "agent"}
    replaced = load_config("adapters", [first, f"+{key}={{env_id:CartPole-v1}}"]).custom_envs["MiniGrid"].env_config
    assert replaced == {"env_id": "CartPole-v1"}
