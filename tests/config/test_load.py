"""Configs compose, the commands of the documents run as typed, and mistakes are explained."""

import json
import re
import shlex
import subprocess
import sys
from dataclasses import FrozenInstanceError
from operator import attrgetter
from pathlib import Path

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

from ragen.config import argument_parser, build_config, config_from_args, load_config
from ragen.config.load import CONFIG_DIR, config_names, load_run_config, to_dict
from ragen.errors import ConfigError

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"


# The commands of the sweeps and of the analysis helpers: each override as typed in a shell, and the value it means.
SWEEP = [
    ("model_path=Qwen/Qwen2.5-3B", "Qwen/Qwen2.5-3B"),
    ("algorithm.adv_estimator=gae", "gae"),
    ("trainer.total_training_steps=400", 400),
    ("trainer.save_freq=-1", -1),
    ("trainer.logger=['console','wandb']", ("console", "wandb")),
    ("trainer.val_before_train=True", True),
    ("trainer.n_gpus_per_node=2", 2),
    ("system.CUDA_VISIBLE_DEVICES=\"'0,1'\"", "0,1"),
    ("ray_kwargs.ray_init.num_cpus=16", 16),
    ("ppo_mini_batch_size=32", 32),
    (f"{ACTOR}.ppo_mini_batch_size=32", 32),
    (f"{ACTOR}.ppo_micro_batch_size_per_gpu=4", 4),
    (f"{ACTOR}.filter_loss_scaling=none", "none"),
    (f"{ACTOR}.entropy_from_logits_with_chunking=True", True),
    ("critic.ppo_mini_batch_size=32", 32),
    ("critic.ppo_micro_batch_size_per_gpu=4", 4),
    ("actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=8", 8),
    (f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=8", 8),
    (f"{ROLLOUT}.gpu_memory_utilization=0.5", 0.5),
    (f"{ROLLOUT}.rollout_filter_strategy=top_p", "top_p"),
    (f"{ROLLOUT}.rollout_filter_top_p_prob_mode=softmax", "softmax"),
    (f"{ROLLOUT}.rollout_filter_type=largest", "largest"),
    (f"{ROLLOUT}.rollout_filter_metric=reward_variance", "reward_variance"),
    ("es_manager.train.env_groups=8", 8),
    ("es_manager.train.group_size=16", 16),
    ("es_manager.train.env_configs.n_groups=[8]", (8,)),
    ("es_manager.val.env_groups=512", 512),
    ("es_manager.val.group_size=1", 1),
    ("es_manager.val.env_configs.n_groups=[512]", (512,)),
]


ANALYSIS = [
    ("model_path=Qwen/Qwen2.5-3B", "Qwen/Qwen2.5-3B"),
    ("trainer.n_gpus_per_node=1", 1),
    ("system.CUDA_VISIBLE_DEVICES=3", "3"),
    ("trainer.logger=\"['console','wandb']\"", ("console", "wandb")),
    ("trainer.gradient_analysis_mode=True", True),
    ("trainer.gradient_analysis_env_groups=128", 128),
    ("trainer.gradient_analysis_group_size=16", 16),
    ("trainer.gradient_analysis_log_prefilter=True", True),
    ("trainer.max_actor_ckpt_to_keep=null", None),
    ("trainer.max_critic_ckpt_to_keep=null", None),
    (f"{ACTOR}.kl_loss_type=low_var_kl", "low_var_kl"),
    (f"{ACTOR}.kl_loss_coef=0.001", 0.001),
    (f"{ACTOR}.entropy_coeff=0.001", 0.001),
    (f"{ACTOR}.checkpoint.save_contents=[model]", ("model",)),
    ("critic.checkpoint.save_contents=[model]", ("model",)),
    (f"{ROLLOUT}.gpu_memory_utilization=0.3", 0.3),
    (f"{ROLLOUT}.rollout_filter_value=0.9", 0.9),
    (f"{ROLLOUT}.rollout_filter_top_p_prob_mode=linear", "linear"),
    (f"{ROLLOUT}.rollout_filter_include_zero=False", False),
    (f"{ROLLOUT}.gradient_analysis_num_buckets=6", 6),
    (f"{ROLLOUT}.gradient_analysis_bucket_mode=quantile", "quantile"),
]


COMMANDS = {
    "top-p sweep": [
        *SWEEP,
        ("trainer.project_name=ragen_release_top_p_sweep", "ragen_release_top_p_sweep"),
        ("trainer.experiment_name=sokoban_top_p_098-Qwen2.5-3B", "sokoban_top_p_098-Qwen2.5-3B"),
        (f"{ACTOR}.use_kl_loss=True", True),
        (f"{ACTOR}.kl_loss_coef=0.001", 0.001),
        (f"{ACTOR}.entropy_coeff=0.001", 0.001),
        (f"{ROLLOUT}.rollout_filter_value=0.98", 0.98),
        (f"{ROLLOUT}.rollout_filter_include_zero=False", False),
    ],
    "KL sweep": [
        *SWEEP,
        ("trainer.default_local_dir=model_saving/kl_sweep_Qwen2.5-3B/0/x", "model_saving/kl_sweep_Qwen2.5-3B/0/x"),
        (f"{ACTOR}.use_kl_loss=False", False),
        (f"{ACTOR}.kl_loss_coef=0", 0.0),
        (f"{ACTOR}.entropy_coeff=0.0", 0.0),
        (f"{ROLLOUT}.rollout_filter_value=1", 1.0),
        (f"{ROLLOUT}.rollout_filter_include_zero=True", True),
    ],
    "analysis helper, GRPO": [
        *ANALYSIS,
        ("algorithm.adv_estimator=grpo", "grpo"),
        ("algorithm.norm_adv_by_std_in_grpo=True", True),
        (f"{ACTOR}.loss_agg_mode=seq-mean-token-mean", "seq-mean-token-mean"),
        (f"{ACTOR}.use_kl_loss=False", False),
        ("trainer.test_freq=10", 10),
        ("trainer.save_freq=100", 100),
        ("trainer.gradient_analysis_every=50", 50),
        ("trainer.gradient_analysis_only=False", False),
        ("trainer.exit_after_gradient_analysis=False", False),
    ],
    "checkpoint probe": [
        *ANALYSIS,
        ("algorithm.adv_estimator=gae", "gae"),
        (f"{ACTOR}.loss_agg_mode=token-mean", "token-mean"),
        (f"{ACTOR}.use_kl_loss=True", True),
        ("trainer.test_freq=0", 0),
        ("trainer.val_before_train=False", False),
        ("trainer.resume_mode=resume_path", "resume_path"),
        (
            "trainer.resume_from_path=a/PPO/filter/x-train8x16/global_step_101",
            "a/PPO/filter/x-train8x16/global_step_101",
        ),
        ("trainer.gradient_analysis_every=1", 1),
        ("trainer.gradient_analysis_only=True", True),
        ("trainer.exit_after_gradient_analysis=True", True),
    ],
    "other spellings": [
        ("system.CUDA_VISIBLE_DEVICES=\"''\"", ""),
        ("trainer.gradient_analysis_mode=False", False),
        ("trainer.gradient_analysis_env_groups=null", None),
        ("trainer.test_freq=-1", -1),
        (f"{ACTOR}.kl_loss_type=low-var-kl", "low_var_kl"),
        ("algorithm.kl_penalty=k3+", "k3+"),
        (f"{ACTOR}.optim.lr=1e-6", 1e-6),
        ("algorithm.kl_ctrl.kl_coef=0.001", 0.001),
        (f"{ROLLOUT}.rollout_filter_metric=reward_std", "reward_variance"),
        (f"{ROLLOUT}.gradient_analysis_bucket_mode=fixed_rv", "fixed_rv"),
        ("agent_proxy.action_sep=\"'|'\"", "|"),
        ("collapse_detection.num_samples=all", "all"),
        ("es_manager.train.env_configs.tags=[SimpleSokoban]", ("SimpleSokoban",)),
        ('es_manager.train.env_configs.n_groups="[8]"', (8,)),
    ],
}


# The direct command of the gradient-analysis walkthrough, as typed.
RESUME_AND_PROBE = r"""
--config-name _2_sokoban \
  model_path=Qwen/Qwen2.5-3B \
  trainer.project_name=ragen_gradient_analysis \
  trainer.experiment_name=sokoban-PPO-filter-topp09-grad-from-ckpt100 \
  trainer.default_local_dir=model_saving/gradient_analysis/sokoban/PPO/filter/sokoban-PPO-filter-topp09-grad-from-ckpt100 \
  trainer.resume_mode=resume_path \
  trainer.resume_from_path=/ABS/PATH/TO/your_run/global_step_100 \
  trainer.total_training_steps=101 \
  trainer.save_freq=-1 \
  trainer.val_before_train=False \
  trainer.test_freq=-1 \
  trainer.n_gpus_per_node=8 \
  ray_kwargs.ray_init.num_cpus=16 \
  system.CUDA_VISIBLE_DEVICES="'0,1,2,3,4,5,6,7'" \
  es_manager.train.env_groups=32 \
  es_manager.train.group_size=16 \
  es_manager.train.env_configs.n_groups="[32]" \
  actor_rollout_ref.actor.use_kl_loss=False \
  actor_rollout_ref.actor.kl_loss_type=low-var-kl \
  actor_rollout_ref.actor.kl_loss_coef=0.001 \
  actor_rollout_ref.actor.entropy_coeff=0.001 \
  actor_rollout_ref.actor.entropy_from_logits_with_chunking=True \
  actor_rollout_ref.actor.filter_loss_scaling=none \
  actor_rollout_ref.actor.loss_agg_mode=token-mean \
  actor_rollout_ref.rollout.gpu_memory_utilization=0.3 \
  actor_rollout_ref.rollout.rollout_filter_value=0.9 \
  actor_rollout_ref.rollout.rollout_filter_strategy=top_p \
  actor_rollout_ref.rollout.rollout_filter_top_p_prob_mode=softmax \
  actor_rollout_ref.rollout.rollout_filter_type=largest \
  actor_rollout_ref.rollout.rollout_filter_metric=reward_variance \
  actor_rollout_ref.rollout.rollout_filter_include_zero=True \
  algorithm.adv_estimator=gae \
  trainer.gradient_analysis_mode=True \
  trainer.gradient_analysis_every=1 \
  trainer.exit_after_gradient_analysis=True \
  actor_rollout_ref.rollout.gradient_analysis_num_buckets=6 \
  actor_rollout_ref.rollout.gradient_analysis_bucket_mode=quantile
"""  # noqa: E501


@pytest.mark.parametrize("name", config_names())
def test_every_config_composes_and_is_valid(name: str):
    assert load_config(name).trainer.total_training_steps >= 1


@pytest.mark.parametrize("command", COMMANDS)
def test_the_overrides_of_a_command_land_with_their_types(command: str):
    overrides = [word for typed, _ in COMMANDS[command] for word in shlex.split(typed)]
    config = load_config("_2_sokoban", overrides)
    for typed, value in COMMANDS[command]:
        found = attrgetter(typed.partition("=")[0])(config)
        assert (found, type(found)) == (value, type(value)), typed


def test_the_direct_command_of_the_walkthrough_runs_as_typed():
    args = argument_parser("train").parse_args(shlex.split(RESUME_AND_PROBE.replace("\\\n", " ")))
    config = config_from_args(args)
    assert config.system.CUDA_VISIBLE_DEVICES == "0,1,2,3,4,5,6,7"
    assert config.es_manager.train.env_configs.n_groups == (32,)
    assert config.trainer.exit_after_gradient_analysis
    assert config.actor_rollout_ref.actor.kl_loss_type == "low_var_kl"


def test_the_base_config_holds_the_documented_defaults():
    config = load_config("base")
    assert config.trainer.gradient_analysis_mode
    assert config.trainer.gradient_analysis_every == 50
    assert config.trainer.gradient_analysis_env_groups is None
    assert not config.trainer.exit_after_gradient_analysis
    assert config.actor_rollout_ref.rollout.gradient_analysis_num_buckets == 6
    assert config.actor_rollout_ref.rollout.name == "native"
    assert config.model_path == "Qwen/Qwen2.5-3B-Instruct"
    assert config.trainer.default_local_dir == "checkpoints/ragen/test"


def test_each_environment_config_plays_its_own_tag():
    bandit, lake = load_config("_1_bandit"), load_config("_3_frozen_lake")
    assert bandit.es_manager.val.env_configs.tags == ("Bandit", "BanditTest")
    assert (bandit.agent_proxy.max_turn, bandit.agent_proxy.max_actions_per_turn) == (1, 1)
    assert lake.es_manager.train.env_configs.tags == lake.es_manager.val.env_configs.tags == ("CoordFrozenLake",)
    assert lake.custom_envs["CoordFrozenLake"].env_config == {"success_rate": 1.0, "observation_format": "grid_coord"}
    assert load_config("eval").es_manager.val.env_configs.n_groups == (256,)
    assert load_config("quickstart").custom_envs["FrozenLake"].env_config["success_rate"] == 1.0


def test_one_key_feeds_all_that_derive_from_it():
    overrides = ["model_path=m", "ppo_mini_batch_size=16", "log_prob_micro_batch_size_per_gpu=8"]
    config = load_config(
        "base", [*overrides, "es_manager.train.env_groups=32", "es_manager.train.env_configs.tags=[Bandit]"]
    )
    assert config.es_manager.train.env_configs.n_groups == (32,)
    assert config.es_manager.val.env_configs.tags == ("Bandit",)
    parts = config.actor_rollout_ref
    assert (parts.model.path, config.critic.model.path) == ("m", "m")
    assert (parts.actor.ppo_mini_batch_size, config.critic.ppo_mini_batch_size) == (16, 16)
    assert (parts.ref.log_prob_micro_batch_size_per_gpu, parts.rollout.log_prob_micro_batch_size_per_gpu) == (8, 8)


def test_the_old_name_of_the_filter_value_is_read_where_the_value_is_not_given(tmp_path: Path):
    rollout = "actor_rollout_ref.rollout"
    old, new = f"{rollout}.rollout_filter_ratio=0.5", f"{rollout}.rollout_filter_value=0.9"
    found = [load_config("base", words).actor_rollout_ref.rollout for words in ([old], [old, new], [])]
    assert [one.rollout_filter_value for one in found] == [0.5, 0.9, 1.0]
    (tmp_path / "mine.yaml").write_text(
        "defaults: [base, _self_]\nactor_rollout_ref: {rollout: {rollout_filter_ratio: 0.25}}\n"
    )
    assert load_config("mine", config_dir=tmp_path).actor_rollout_ref.rollout.rollout_filter_value == 0.25
    with pytest.raises(ConfigError, match="rollout_filter_value"):
        load_config("base", [f"{rollout}.rollout_filter_ratio=some"])


def test_no_seed_of_validation_means_the_usual_one():
    assert load_config("base", ["seed.val=null"]).seed.val == load_config("base").seed.val == 123


@pytest.mark.parametrize(
    "text, overrides, message",
    [
        ("a: 1", ["custom_envs.X.foo=1"], "custom_envs.X.foo: no such key yet"),
        ("actor_rollout_ref: 5", [], "missing system"),
    ],
)
def test_a_config_without_the_usual_sections_is_answered_in_words(tmp_path: Path, text, overrides, message):
    (tmp_path / "bare.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_config("bare", overrides, config_dir=tmp_path)


def test_a_tag_is_added_on_the_command_line():
    row = "{env_type: sokoban, max_actions_per_traj: 5, env_instruction: x, max_tokens: 50, env_config: {num_boxes: 3}}"
    config = load_config("base", [f"+custom_envs.Mine={row}", "es_manager.train.env_configs.tags=[Mine]"])
    assert config.custom_envs["Mine"].env_config == {"num_boxes": 3}
    assert config.custom_envs["Mine"].max_workers == 1


def test_a_private_config_folder_builds_on_the_repository(tmp_path: Path):
    (tmp_path / "mine.yaml").write_text("defaults: [base, _self_]\ntrainer: {test_freq: 3}\n")
    config = load_config("mine", ["seed.train=7"], tmp_path)
    assert (config.trainer.test_freq, config.seed.train) == (3, 7)


def test_options_may_stand_between_the_overrides():
    args = argument_parser("x").parse_args(["seed.train=1", "--config-name", "_1_bandit", "seed.val=2"])
    assert (args.config_name, args.overrides) == ("_1_bandit", ["seed.train=1", "seed.val=2"])


def test_a_loaded_config_is_frozen():
    with pytest.raises(FrozenInstanceError):
        load_config("base").seed.train = 1  # type: ignore[misc]


def test_a_plain_tree_builds_the_same_config_again():
    config = load_config("_1_bandit")
    assert build_config(to_dict(config)) == config


def test_loading_leaves_a_surrounding_hydra_as_it_was():
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        load_config("_1_bandit")
        assert GlobalHydra.instance().is_initialized()
        assert hydra_compose("_3_frozen_lake").trainer.experiment_name == "frozenlake-main"
    assert not GlobalHydra.instance().is_initialized()


def test_instructions_are_short_and_claim_no_board_size():
    for tag in load_config("base").custom_envs.values():
        assert 1 <= len(re.findall(r"[.!?](?:\s|$)", tag.env_instruction)) <= 3
        assert not re.search(r"\d+\s*x\s*\d+", tag.env_instruction)


def test_the_package_loads_neither_torch_nor_hydra():
    code = (
        "import sys, ragen.config, ragen.config.show\n"
        "assert 'hydra' not in sys.modules\n"
        "ragen.config.load_config()\n"
        "heavy = {'torch', 'transformers', 'ray', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


BROKEN_FILES = {
    "one bracket: [1": "expected ',' or ']'",
    "defaults: [broken, _self_]": "a file includes itself",
    "defaults: [nope]": "Could not load 'nope'",
    "defaults: 5": "defaults must be a list",
    "defaults: [base, _self_]\na: &x [*x]": "a key refers to itself",
    "defaults: [base, _self_]\nmodel_path: ${actor_rollout_ref.model.path}": "Recursive interpolation",
    "defaults: [base, _self_]\nmodel_path: ${nope}": "nope",
    "defaults: [base, _self_]\ntrainer: 5": "trainer: expected a mapping of keys, got 5",
    "defaults: [base, _self_]\ntrainer:\n\ttest_freq: 1": "found character",
    "defaults: [base, _self_]\ntrainer: {test_freq: 1, test_freq: 2}": "found duplicate key test_freq",
    "defaults: [base, _self_]\nseed: !!python/object/apply:os.system [ls]": "could not determine a constructor",
    "defaults: [base, _self_]\n1: 2": "1: unknown key",
    "- 1": "must be a DictConfig",
    "a few words": "a few words: unknown key",
    "": "Build on a whole configuration",
    "\udcff": "can't decode byte 0xff",
    "a: " + "[" * 3000: "itself",
}


@pytest.mark.parametrize("text", BROKEN_FILES, ids=lambda text: text[:40])
def test_a_broken_file_is_one_line(tmp_path: Path, text: str):
    (tmp_path / "broken.yaml").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError) as caught:
        load_config("broken", config_dir=tmp_path)
    assert BROKEN_FILES[text] in str(caught.value)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 1000


def test_the_config_of_an_older_run_takes_new_keys_from_base(tmp_path: Path):
    tree = to_dict(load_config("base", ["trainer.test_freq=7"]))
    del tree["trainer"]["console"], tree["lora"]
    (tmp_path / "config.yaml").write_text(json.dumps(tree))
    config = load_run_config(["trainer.save_freq=3"], tmp_path)
    assert (config.trainer.test_freq, config.trainer.save_freq, config.trainer.console) == (7, 3, "compact")
    with pytest.raises(ConfigError, match=r"missing .*Build on a whole"):
        load_config("config", config_dir=tmp_path)


def older_run(folder: Path, *missing: str) -> Path:
    """A run directory whose version did not have these keys of agent_proxy."""
    tree = to_dict(load_config("base"))
    for key in missing:
        del tree["agent_proxy"][key]
    (folder / "config.yaml").write_text(json.dumps(tree))
    return folder


def test_a_run_from_before_the_example_answer_is_read_as_without_it(tmp_path: Path):
    run = older_run(tmp_path, "example_answer")
    assert not load_run_config([], run).agent_proxy.example_answer
    assert load_run_config(["agent_proxy.example_answer=True"], run).agent_proxy.example_answer


def test_what_a_run_stored_counts_and_unknown_keys_stay_unknown(tmp_path: Path):
    tree = to_dict(load_config("base", ["agent_proxy.example_answer=True"]))
    (tmp_path / "config.yaml").write_text(json.dumps(tree))
    assert load_run_config([], tmp_path).agent_proxy.example_answer
    with pytest.raises(ConfigError, match=r"agent_proxy\.exampel_answer: unknown key"):
        load_run_config(["agent_proxy.exampel_answer=True"], tmp_path)
