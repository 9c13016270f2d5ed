"""What legacy settings mean in the normal configuration."""

import pytest

from ragen.legacy.settings import read_settings
from ragen.legacy.translate import change, translate
from ragen.sft.config import load_sft
from tests.legacy.test_settings import modern


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


def test_an_option_of_the_environment_reaches_it():
    boxes = modern("sokoban", "env.num_boxes=2").custom_envs["SimpleSokoban"].env_config
    assert boxes is not None and boxes["num_boxes"] == 2
    lake = modern("frozenlake", "env.success_rate=0.5").custom_envs["FrozenLake"].env_config
    assert lake is not None and lake["success_rate"] == 0.5


def test_texts_are_quoted_where_the_loader_needs_it():
    assert change("old", "a", "0,1") == ("old", "a='0,1'")
    assert change("old", "a", ["x", True, 1.5, None]) == ("old", "a=[x,True,1.5,null]")
