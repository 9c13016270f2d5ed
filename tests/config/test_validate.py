"""A contradictory configuration is refused at start, with the key, the value and the way out."""

import shlex
import time

import pytest
from omegaconf import DictConfig, OmegaConf

from ragen.config import build_config, load_config
from ragen.config.load import CONFIG_DIR
from ragen.errors import ConfigError

ROLLOUT, ACTOR, TRAIN = "actor_rollout_ref.rollout", "actor_rollout_ref.actor", "es_manager.train"

BAD = [
    # wrong types and choices
    ("trainer.test_freq=often", ["trainer.test_freq", "'often'", "as a number"]),
    ("trainer.test_freq=2.5", ["trainer.test_freq", "2.5", "an integer"]),
    ("trainer.val_only=1", ["trainer.val_only", "1 (int)", "True or False"]),
    ("trainer.experiment_name=../../x", ["trainer.experiment_name is '../../x'", "below", "trainer.default_local_dir"]),
    ("trainer.experiment_name=/tmp/x", ["trainer.experiment_name is '/tmp/x'"]),
    ("trainer.experiment_name=a/../../x", ["trainer.experiment_name is 'a/../../x'"]),
    ("trainer.project_name=..", ["trainer.project_name is '..'"]),
    ("trainer.experiment_name=12", ["trainer.experiment_name", "12", "Quote it"]),
    ("trainer.logger=wandb", ["trainer.logger", "'wandb'", "a list"]),
    ("trainer.logger=[wanbd]", ["trainer.logger[0]", "'wanbd'", "Did you mean wandb?"]),
    ("algorithm.adv_estimator=gea", ["algorithm.adv_estimator", "'gea'", "Did you mean gae?"]),
    (f"{ACTOR}.kl_loss_type=low-vr-kl", [f"{ACTOR}.kl_loss_type", "'low_vr_kl'", "Did you mean low_var_kl?"]),
    (f"{ROLLOUT}.rollout_filter_strategy=topp", ["rollout_filter_strategy", "'topp'", "Did you mean top_p?"]),
    (f"{ROLLOUT}.name=vlm", [f"{ROLLOUT}.name", "'vlm'", "Did you mean vllm?"]),
    ("'custom_envs.Mine={env_type: bandit}'", ["custom_envs.Mine", "max_actions_per_traj", "Add it"]),
    # ranges
    (f"{TRAIN}.group_size=0", [f"{TRAIN}.group_size is 0", "at least 1"]),
    ("ppo_mini_batch_size=0", ["ppo_mini_batch_size is 0", "at least 1"]),
    (f"{ROLLOUT}.temperature=0", [f"{ROLLOUT}.temperature is 0", "greater than 0"]),
    (f"{ROLLOUT}.val_kwargs.temperature=-1", ["val_kwargs.temperature is -1", "0 or more"]),
    (f"{ROLLOUT}.top_p=0", [f"{ROLLOUT}.top_p is 0", "above 0 and at most 1"]),
    (f"{ROLLOUT}.top_k=0", [f"{ROLLOUT}.top_k is 0", "-1 (all) or at least 1"]),
    (f"{ROLLOUT}.gpu_memory_utilization=30", ["gpu_memory_utilization is 30", "at most 1"]),
    (f"{ACTOR}.clip_ratio_c=1", ["clip_ratio_c is 1", "above 1"]),
    (f"{ACTOR}.optim.betas=[0.9,1.0]", ["optim.betas[1] is 1.0", "from 0 to below 1"]),
    ("algorithm.lam=1.5", ["algorithm.lam is 1.5", "from 0 to 1"]),
    ("lora.rank=-1", ["lora.rank is -1", "0 or more"]),
    ("es_manager.format_penalty=0.1", ["es_manager.format_penalty is 0.1", "0 or less"]),
    ("collapse_detection.num_samples=0", ["collapse_detection.num_samples is 0", "or all"]),
    ("custom_envs.Bandit.max_tokens=0", ["custom_envs.Bandit.max_tokens is 0", "at least 1"]),
    # keys against each other
    (f"{TRAIN}.env_configs.tags=[CoordSokobam]", ["'CoordSokobam'", "Did you mean CoordSokoban?", "--config-dir"]),
    (f"{TRAIN}.env_configs.tags=[Bandit,FrozenLake]", ["2 tags", "1 entries", "[8]", "one number per tag"]),
    (f"{TRAIN}.env_configs.n_groups=[4]", ["n_groups sums to 4", "env_groups is 8", f"{TRAIN}.env_groups=4"]),
    (f"{TRAIN}.env_configs.tags=[] {TRAIN}.env_configs.n_groups=[]", ["n_groups is []", "at least one tag"]),
    ("custom_envs.Bandit.step_timeout=0", ["step_timeout is 0", "or null"]),
    ("custom_envs.Bandit.max_workers=4", ["max_workers is 4", "parallel_friendly: True"]),
    ("trainer.n_gpus_per_node=2", ["1 GPUs (0)", "n_gpus_per_node is 2", "trainer.n_gpus_per_node=1"]),
    (f"{ROLLOUT}.tensor_model_parallel_size=2", ["tensor_model_parallel_size is 2", "1 GPUs", "divisor"]),
    (f"{ROLLOUT}.rollout_filter_value=1.5", ["rollout_filter_value is 1.5", "With top_p", "at most 1"]),
    (
        f"{ROLLOUT}.rollout_filter_strategy=top_k_abs {ROLLOUT}.rollout_filter_value=2.5",
        ["rollout_filter_value is 2.5", "With top_k_abs", "whole number"],
    ),
    (
        f"{TRAIN}.group_size=1 ppo_mini_batch_size=8 {ROLLOUT}.rollout_filter_include_zero=False",
        ["rollout_filter_metric is reward_variance", "group_size is 1", "group_size of 2 or more"],
    ),
    (f"{ROLLOUT}.rollout_filter_value=0.1", ["ppo_mini_batch_size is 32", "about 12.8 samples", "Lower"]),
    (f"{ROLLOUT}.response_length=3600", ["response_length is 3600", "max_model_len is 3600", "Raise max_model_len"]),
    (f"'{ROLLOUT}.stop_strings=[\"\"]'", ["stop_strings", "empty text", "Remove it"]),
    (
        "algorithm.bi_level_gae=True algorithm.adv_estimator=grpo",
        ["bi_level_gae is True", "adv_estimator is grpo", "adv_estimator=gae"],
    ),
    (
        "algorithm.bi_level_gae=True agent_proxy.use_turn_scores=True",
        ["bi_level_gae is True", "use_turn_scores=True", "Set use_turn_scores=False"],
    ),
    ("critic.enable=False", ["critic.enable is False", "adv_estimator=gae", "critic.enable=null"]),
    ("algorithm.soft_advantage_reweight=True", ["soft_advantage_reweight is True", "adv_estimator=gae", "use grpo"]),
    ("enable_response_mask=False", ["enable_response_mask is False", "Set it to True"]),
    (
        "agent_proxy.context_window_mode=single_turn agent_proxy.max_context_window=0",
        ["max_context_window is 0", "Set 1 or more"],
    ),
    ("trainer.resume_mode=resume_path", ["resume_from_path is null", "global_step_<N>"]),
    (
        "trainer.resume_mode=resume_path trainer.resume_from_path=runs/actor",
        ["resume_from_path is runs/actor", "global_step_<N>"],
    ),
    ("trainer.resume_from_path=a/global_step_1", ["resume_mode is auto", "resume_mode=resume_path"]),
    (
        "trainer.gradient_analysis_only=True trainer.gradient_analysis_mode=False",
        ["gradient_analysis_only is True", "gradient_analysis_mode is False", "gradient_analysis_mode=True"],
    ),
]


@pytest.fixture(scope="module")
def files() -> DictConfig:
    """The base config, its interpolations still open; composing it anew for every row would take most of the time."""
    return OmegaConf.merge(OmegaConf.load(CONFIG_DIR / "envs.yaml"), OmegaConf.load(CONFIG_DIR / "base.yaml"))


def check(files: DictConfig, typed: str) -> None:
    tree = OmegaConf.merge(files, OmegaConf.from_dotlist(shlex.split(typed)))
    build_config({key: value for key, value in OmegaConf.to_container(tree, resolve=True).items() if key != "defaults"})


@pytest.mark.parametrize(("typed", "words"), BAD, ids=[row[0] for row in BAD])
def test_a_bad_config_is_refused_with_key_value_and_remedy(files: DictConfig, typed: str, words: list[str]):
    with pytest.raises(ConfigError) as caught:
        check(files, typed)
    assert [word for word in words if word not in str(caught.value)] == [], caught.value


def test_a_refusal_takes_less_than_two_seconds_of_processor_time():
    start = time.process_time()
    with pytest.raises(ConfigError, match="env_groups is 9"):
        load_config("_2_sokoban", ["es_manager.train.env_groups=9", "es_manager.train.env_configs.n_groups=[8]"])
    assert time.process_time() - start < 2


GOOD = [
    "algorithm.bi_level_gae=True",
    "critic.enable=False algorithm.adv_estimator=grpo",
    "critic.ppo_mini_batch_size=256 algorithm.adv_estimator=grpo",  # without a critic its batch does not matter
    f"{ROLLOUT}.rollout_filter_strategy=top_k_abs {ROLLOUT}.rollout_filter_value=4",
    f"{ROLLOUT}.rollout_filter_value=0.1 agent_proxy.context_window_mode=single_turn",  # 12.8 episodes x 5 turns
    f"{TRAIN}.group_size=1 ppo_mini_batch_size=8",
    f"{TRAIN}.env_configs.tags=[Bandit,FrozenLake] {TRAIN}.env_configs.n_groups=[3,5] "
    "es_manager.val.env_configs.tags=[Bandit]",
    f"{ROLLOUT}.val_kwargs.temperature=0",
    "seed.train=null",
    "lora.rank=64 lora.target_modules=[q_proj,v_proj]",
]


@pytest.mark.parametrize("typed", GOOD)
def test_an_unusual_but_consistent_config_is_accepted(files: DictConfig, typed: str):
    check(files, typed)


@pytest.mark.parametrize("name", ["a/b", "..a", "a..b", "v1.0"])
def test_a_name_may_have_folders_and_dots(name: str):
    trainer = load_config("base", [f"trainer.experiment_name={name}"]).trainer
    assert trainer.default_local_dir == f"checkpoints/{trainer.project_name}/{name}"
