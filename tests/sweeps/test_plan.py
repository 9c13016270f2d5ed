"""What each experiment would start: every example of the documents, by dry run."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from ragen.cli.sweep import main
from ragen.config import load_config
from ragen.config.quoting import quoted
from ragen.errors import ConfigError, MissingExtra
from ragen.sweeps import report
from ragen.sweeps.experiments import value_label
from tests.sweeps.sweeping import REPOSITORY, SMALL, dry_run

ACTOR, ROLLOUT = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout."

SHARED = {
    "model_path": "Qwen/Qwen2.5-3B",
    "algorithm.adv_estimator": "gae",
    "trainer.logger": "['console','wandb']",
    "trainer.val_before_train": "True",
    "trainer.total_training_steps": "400",
    "trainer.save_freq": "-1",
    "ray_kwargs.ray_init.num_cpus": "16",
    ROLLOUT + "gpu_memory_utilization": "0.5",
    ACTOR + "filter_loss_scaling": "none",
    ACTOR + "ppo_mini_batch_size": "32",
    "ppo_mini_batch_size": "32",
    ACTOR + "ppo_micro_batch_size_per_gpu": "4",
    ACTOR + "entropy_from_logits_with_chunking": "True",
    "critic.ppo_mini_batch_size": "32",
    "critic.ppo_micro_batch_size_per_gpu": "4",
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": "8",
    ROLLOUT + "log_prob_micro_batch_size_per_gpu": "8",
    ROLLOUT + "rollout_filter_strategy": "top_p",
    ROLLOUT + "rollout_filter_top_p_prob_mode": "softmax",
    ROLLOUT + "rollout_filter_type": "largest",
    ROLLOUT + "rollout_filter_metric": "reward_variance",
    "es_manager.train.env_groups": "8",
    "es_manager.train.group_size": "16",
    "es_manager.train.env_configs.n_groups": "[8]",
    "es_manager.val.env_groups": "512",
    "es_manager.val.group_size": "1",
    "es_manager.val.env_configs.n_groups": "[512]",
}


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def assert_sets(command: dict[str, str], expected: dict[str, str]) -> None:
    assert {key: command.get(key) for key in expected} == expected


# --- the three sweeps


def test_the_default_top_p_sweep(capsys):
    commands = dry_run(capsys, "top-p")
    for command in commands:
        kl_and_entropy = {"use_kl_loss": "True", "kl_loss_coef": "0.001", "entropy_coeff": "0.001"}
        assert_sets(command, SHARED | {ACTOR + key: value for key, value in kl_and_entropy.items()})
        assert command["trainer.project_name"] == "ragen_release_top_p_sweep"
    conditions = [
        (command[ROLLOUT + "rollout_filter_value"], command[ROLLOUT + "rollout_filter_include_zero"])
        for command in commands
    ]
    numbers = ["1.0", "0.98", "0.95", "0.9", "0.8", "0.6", "0.4"]
    assert conditions == [*((number, "False") for number in numbers), ("1.0", "True")]
    names = [command["trainer.experiment_name"] for command in commands]
    labels = ["10", "098", "095", "09", "08", "06", "04", "nofilter"]
    assert names == [f"sokoban_top_p_{label}-Qwen2.5-3B" for label in labels]
    assert commands[1]["trainer.default_local_dir"] == f"model_saving/top_p_sweep_Qwen2.5-3B/098/{names[1]}"


def test_top_p_points_on_four_gpus_each(capsys):
    arguments = ["--rollout_filter_value", "0.9,nofilter", "--gpus-per-exp", "4", "--gpus", "0,1,2,3,4,5,6,7"]
    commands = dry_run(capsys, "top-p", *arguments)
    assert [command["system.CUDA_VISIBLE_DEVICES"] for command in commands] == ["'0,1,2,3'", "'4,5,6,7'"]
    assert [command["CUDA_VISIBLE_DEVICES"] for command in commands] == ["0,1,2,3", "4,5,6,7"]
    assert [command["trainer.n_gpus_per_node"] for command in commands] == ["4", "4"]


@pytest.mark.parametrize("word, key", [("kl", "kl_loss_coef"), ("entropy", "entropy_coeff")])
def test_the_default_coefficient_sweeps(capsys, word, key):
    commands = dry_run(capsys, word)
    values = ["0", "0.001", "0.003", "0.01", "0.03", "0.1"]
    assert [command[ACTOR + key] for command in commands] == values
    uses_kl = [command[ACTOR + "use_kl_loss"] for command in commands]
    assert uses_kl == (["False"] + ["True"] * 5 if word == "kl" else ["False"] * 6)
    for command, value in zip(commands, values, strict=True):
        other = "entropy_coeff" if word == "kl" else "kl_loss_coef"
        assert float(command[ACTOR + other]) == 0
        off = {ROLLOUT + "rollout_filter_value": "1", ROLLOUT + "rollout_filter_include_zero": "True"}
        assert_sets(command, SHARED | off | {"trainer.project_name": f"ragen_release_{word}_sweep"})
        name = f"sokoban_{word}_sweep_nofilter_{value_label(value)}-Qwen2.5-3B"
        folder = f"model_saving/{word}_sweep_Qwen2.5-3B/{value_label(value)}/{name}"
        assert_sets(command, {"trainer.experiment_name": name, "trainer.default_local_dir": folder})
        inherited = [ACTOR + "kl_loss_type", "algorithm.kl_ctrl.kl_coef", "trainer.test_freq", ACTOR + "loss_agg_mode"]
        assert not [key for key in inherited if key in command]


def test_the_kl_example_with_zero_variance_groups_left_out(capsys):
    arguments = ["--kl-values", "0,0.001,0.01", "--rollout_filter_include_zero", "False", "--gpus", "0,1"]
    commands = dry_run(capsys, "kl", *arguments, "--ray-num-cpus", "16", "--save-freq", "50")
    assert [command["CUDA_VISIBLE_DEVICES"] for command in commands] == ["0", "1", "0"]
    for command in commands:
        assert_sets(command, {"trainer.save_freq": "50", ROLLOUT + "rollout_filter_include_zero": "False"})
        assert command["trainer.experiment_name"].startswith("sokoban_kl_sweep_filter_zero_")


def test_four_gpus_for_two_entropy_points(capsys):
    arguments = ["--entropy-values=0,0.01", "--rollout_filter_include_zero=no", "--gpus-per-exp=4"]
    commands = dry_run(capsys, "entropy", *arguments, "--gpus=0,1,2,3,4,5,6,7", "--steps=7")
    assert [command["trainer.n_gpus_per_node"] for command in commands] == ["4", "4"]
    assert commands[0]["trainer.total_training_steps"] == "7"


def test_a_kl_of_zero_is_off_however_it_is_written(capsys):
    commands = dry_run(capsys, "kl", "--kl-values", "0.0, 1e-3")
    assert [command[ACTOR + "use_kl_loss"] for command in commands] == ["False", "True"]


def test_another_model_has_another_name_in_every_path(capsys):
    assert main(["kl", "--dry-run", "--kl-values", "0", "--model-path", "tiny", "--model-name", "small"]) == 0
    output = capsys.readouterr().out
    name = "sokoban_kl_sweep_nofilter_0-small"
    assert "model_path=tiny" in output and "Qwen" not in output
    assert f"logs/kl_sweep_small/nofilter/0/{name}.log" in output
    assert f"trainer.default_local_dir=model_saving/kl_sweep_small/0/{name}" in output


def test_trailing_keys_win_and_take_what_follows_from_them_along(capsys):
    changes = ["es_manager.val.env_groups=8", "ppo_mini_batch_size=16", "trainer.test_freq=5", "algorithm.lam=0.9"]
    [command] = dry_run(capsys, "kl", "--kl-values", "0", *changes, "--steps", "3")
    assert_sets(command, dict(change.split("=") for change in changes))
    overrides = [f"{key}={value}" for key, value in command.items() if key != "CUDA_VISIBLE_DEVICES"]
    config = load_config("_2_sokoban", overrides)
    assert config.es_manager.val.env_configs.n_groups == (8,)
    assert config.critic.ppo_mini_batch_size == config.actor_rollout_ref.actor.ppo_mini_batch_size == 16


def test_seeds_are_far_apart_and_the_first_one_is_the_plain_run(capsys):
    commands = dry_run(capsys, "kl", "--kl-values", "0,0.1", "--seeds", "3", "seed.train=5")
    assert [command["seed.train"] for command in commands] == ["5", "5", "2000005", "2000005", "4000005", "4000005"]
    names = [command["trainer.experiment_name"] for command in commands]
    plain = ["sokoban_kl_sweep_nofilter_0-Qwen2.5-3B", "sokoban_kl_sweep_nofilter_01-Qwen2.5-3B"]
    assert names == [*plain, *(f"{name}-seed2" for name in plain), *(f"{name}-seed3" for name in plain)]
    assert len({command["trainer.default_local_dir"] for command in commands}) == 6


# --- the gradient analysis


def helper(capsys, *arguments: str) -> dict[str, str]:
    [command] = dry_run(capsys, "grad-analysis", *arguments)
    return command


ANALYSIS = {
    "trainer.gradient_analysis_mode": "True",
    "trainer.gradient_analysis_env_groups": "128",
    "trainer.gradient_analysis_group_size": "16",
    "trainer.gradient_analysis_log_prefilter": "True",
    ROLLOUT + "gradient_analysis_num_buckets": "6",
    ROLLOUT + "gradient_analysis_bucket_mode": "quantile",
    ROLLOUT + "rollout_filter_value": "0.9",
    ROLLOUT + "rollout_filter_strategy": "top_p",
    ROLLOUT + "rollout_filter_top_p_prob_mode": "linear",
    ROLLOUT + "rollout_filter_type": "largest",
    ROLLOUT + "rollout_filter_metric": "reward_variance",
    ROLLOUT + "rollout_filter_include_zero": "False",
    ROLLOUT + "gpu_memory_utilization": "0.3",
    "es_manager.train.env_groups": "8",
    "es_manager.train.group_size": "16",
    ACTOR + "kl_loss_type": "low_var_kl",
    ACTOR + "kl_loss_coef": "0.001",
    ACTOR + "entropy_coeff": "0.001",
    ACTOR + "ppo_micro_batch_size_per_gpu": "4",
    ROLLOUT + "log_prob_micro_batch_size_per_gpu": "4",
}


def test_the_training_helper(capsys):
    command = helper(capsys)
    name = "sokoban-PPO-filter-topp09-Qwen2.5-3B-train8x16-analysis128x16-grad-every50"
    expected = {
        "trainer.project_name": "ragen_gradient_analysis",
        "trainer.experiment_name": name,
        "trainer.default_local_dir": f"model_saving/gradient_analysis/sokoban/PPO/filter/{name}",
        "trainer.total_training_steps": "101",
        "trainer.save_freq": "100",
        "trainer.test_freq": "10",
        "trainer.val_before_train": "True",
        "trainer.gradient_analysis_every": "50",
        "trainer.exit_after_gradient_analysis": "False",
        "trainer.save_at_gradient_analysis": "True",
        "trainer.max_actor_ckpt_to_keep": "null",
        "trainer.max_critic_ckpt_to_keep": "null",
        ACTOR + "checkpoint.save_contents": "[model]",
        "critic.checkpoint.save_contents": "[model]",
        ACTOR + "use_kl_loss": "False",
        ACTOR + "loss_agg_mode": "token-mean",
        "algorithm.adv_estimator": "gae",
    }
    assert_sets(command, ANALYSIS | expected)


def test_the_training_helper_with_grpo_on_four_gpus(capsys):
    command = helper(capsys, "--algo", "grpo", "--gpus", "0,1,2,3", "--steps", "5")
    expected = {
        "algorithm.adv_estimator": "grpo",
        "algorithm.norm_adv_by_std_in_grpo": "True",
        ACTOR + "loss_agg_mode": "seq-mean-token-mean",
        "trainer.n_gpus_per_node": "4",
        "system.CUDA_VISIBLE_DEVICES": "'0,1,2,3'",
        "trainer.total_training_steps": "5",
    }
    assert_sets(command, ANALYSIS | expected)
    assert "sokoban-GRPO-filter" in command["trainer.experiment_name"]


def test_one_analysis_only_job(capsys):
    """The recipe of the walkthrough: one step, and two keys."""
    keys = {"trainer.gradient_analysis_every": "1", "trainer.exit_after_gradient_analysis": "True"}
    gpus = ["--gpus", "0,1,2,3,4,5,6,7"]
    command = helper(capsys, "--steps", "1", *gpus, *(f"{key}={value}" for key, value in keys.items()))
    assert_sets(command, keys | {"trainer.n_gpus_per_node": "8", "trainer.total_training_steps": "1"})


def test_the_probe_of_the_default_checkpoint(capsys):
    [command] = dry_run(capsys, "probe-ckpt")
    name = "sokoban-PPO-filter-topp09-Qwen2.5-3B-probe-ckpt101-noval-kl_and_entropy"
    trained = "sokoban-PPO-filter-topp09-Qwen2.5-3B-train8x16-analysis128x16-grad-every50"
    expected = {
        "trainer.project_name": "ragen_gradient_analysis_probe",
        "trainer.experiment_name": name,
        "trainer.default_local_dir": f"model_saving/gradient_analysis_probe/sokoban/PPO/filter/{name}",
        "trainer.resume_mode": "resume_path",
        "trainer.resume_from_path": f"model_saving/gradient_analysis/sokoban/PPO/filter/{trained}/global_step_101",
        "trainer.total_training_steps": "101",
        "trainer.save_freq": "-1",
        "trainer.test_freq": "0",
        "trainer.val_before_train": "False",
        "trainer.gradient_analysis_every": "1",
        "trainer.gradient_analysis_only": "True",
        "trainer.exit_after_gradient_analysis": "True",
        ACTOR + "use_kl_loss": "True",
    }
    assert_sets(command, ANALYSIS | expected)


def test_the_probe_of_a_step_with_validation(capsys):
    arguments = ["--checkpoint-step", "51", "--with-val", "--gpus", "0,1,2,3"]
    [command] = dry_run(capsys, "probe-ckpt", *arguments)
    assert_sets(command, {"trainer.val_before_train": "True", "trainer.total_training_steps": "51"})
    assert command["trainer.experiment_name"].endswith("-probe-ckpt51-withval-kl_and_entropy")
    assert command["trainer.resume_from_path"].endswith("/global_step_51")


def test_the_probe_of_a_folder(capsys):
    folder = "model_saving/gradient_analysis/sokoban/PPO/filter/mine/global_step_7"
    [command] = dry_run(capsys, "probe-ckpt", "--resume-from-path", folder, "--checkpoint-step", "9")
    assert_sets(command, {"trainer.resume_from_path": folder, "trainer.total_training_steps": "7"})
    [command] = dry_run(capsys, "probe-ckpt", "--checkpoint-root", "elsewhere", "--checkpoint-step", "0")
    assert_sets(command, {"trainer.resume_from_path": "elsewhere/global_step_0", "trainer.total_training_steps": "1"})


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--resume-from-path", "somewhere/actor"], "global_step_<N>"),
        (["--checkpoint-step", "51"], "global_step_51 does not exist.*Train first"),
    ],
)
def test_a_probe_needs_a_checkpoint(arguments, message):
    with pytest.raises(ConfigError, match=message):
        main(["probe-ckpt", *arguments])


# --- mistakes


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["kl", "--kl-value", "0"], "unrecognized arguments: --kl-value"),
        (["kl", "--kl-values", " , "], "the list is empty"),
        (["kl", "--kl-values", "0,big"], "'big' is not a value of this sweep"),
        (["top-p", "--rollout_filter_value", "1.2"], "'1.2' is not a value"),
        (["kl", "--gpus-per-exp", "0"], "'0' is not a whole number from 1 to 1000000000"),
        (["kl", "--ray-num-cpus", "-3"], "'-3' is not a whole number from 1 to 1000000000"),
        (["kl", "--gpu-memory-utilization", "1.5"], "not a share"),
        (["kl", "--rollout_filter_include_zero", "maybe"], "neither True nor False"),
        (["top-p", "--rollout_filter_include_zero", "True"], "unrecognized arguments"),
        (["grad-analysis", "--algo", "DPO"], "'DPO' is neither PPO nor GRPO"),
        (["probe-ckpt", "--checkpoint-step", "-1"], "'-1' is not a whole number"),
        (["kl", "steps"], "'steps' is neither an option nor key=value"),
        (["kl", "--model-path", "my model"], "--model-name"),
    ],
)
def test_a_wrong_option_shows_the_help(arguments, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    output = capsys.readouterr().err
    assert message in output
    assert "--dry-run" in output, "the help follows"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["top-p", "--rollout_filter_value", "1.0,0.9,.09"], "0.9 and .09 are both called 09"),
        (["kl", "--kl-values", "1.0,10"], "1.0 and 10 are both called 10"),
        (["kl", "--kl-values", "0,0.0"], "0 and 0.0 are the same value"),
        (["entropy", "--entropy-values", "0.1,0.10"], "0.1 and 0.10 are the same value"),
        (["top-p", "--rollout_filter_value", "1.0,nofilter,1"], "1.0 and 1 are the same value"),
        (["kl", "--gpus", "0,1,2", "--gpus-per-exp", "2"], "does not divide the 3 GPUs 0,1,2"),
        (["kl", "--gpus", "0,1", "--gpus-per-exp", "4"], "there are 2: 0,1"),
        (["kl", "--gpus", "0,0", "--gpus-per-exp", "2"], "the same GPU twice"),
        (["kl", "model_path=tiny"], "Use --model-path"),
        (["kl", "actor_rollout_ref.actor.kl_loss_coef=1"], "is what this sweep varies"),
        (["kl", "trainer.default_local_dir=one"], "would both write into one"),
        (["kl", "trainer.tst_freq=1"], "trainer.test_freq"),
        (["kl", "--kl-values", "-1"], "kl_loss_coef"),
        (["kl", "--ray", "somewhere:6379", "--gpus", "0"], "Leave one out"),
    ],
)
def test_mistakes_are_told_before_anything_starts(arguments, message):
    with pytest.raises(ConfigError, match=message):
        main(arguments)
    assert not Path("logs").exists()


def test_a_missing_figure_library_is_told_before_the_first_run(monkeypatch):
    monkeypatch.setattr(report.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install -e '\.\[plot\]'"):
        main(["kl", *SMALL])
    assert not Path("logs").exists()


def test_an_unknown_experiment_lists_those_there_are(capsys):
    assert main(["kll"]) == 2
    assert "top-p" in capsys.readouterr().err


def test_labels_leave_dots_out():
    assert [value_label(value) for value in ("0.001", "0.98", "1.0", "NoFilter")] == ["0001", "098", "10", "nofilter"]


@pytest.mark.parametrize("script", sorted(path.name for path in (REPOSITORY / "scripts/runs").glob("*.sh")))
def test_scripts_take_the_same_options(script, tmp_path):
    command = ["bash", str(REPOSITORY / "scripts" / "runs" / script)]
    wrong = subprocess.run([*command, "--gpu"], cwd=tmp_path, capture_output=True, text=True)
    assert wrong.returncode == 2 and "unrecognized arguments: --gpu" in wrong.stderr
    assert "--gpu-memory-utilization" in wrong.stderr, "the help follows"


WORD_OF_SCRIPT = {
    "run_top_p_sweep.sh": "top-p",
    "run_kl_sweep.sh": "kl",
    "run_entropy_sweep.sh": "entropy",
    "run_sokoban_ppo_filter_grad_analysis.sh": "grad-analysis",
    "run_sokoban_ppo_filter_grad_analysis_probe_ckpt.sh": "probe-ckpt",
}


def documented_commands() -> list[str]:
    """Every `bash scripts/runs/...` of the two pages about these experiments."""
    pages = [
        REPOSITORY / "docs" / f"experiment_{name}.md" for name in ("intervention_sweep", "sokoban_gradient_analysis")
    ]
    blocks = [block for page in pages for block in re.findall(r"```bash\n(.*?)```", page.read_text(), flags=re.DOTALL)]
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]


@pytest.mark.parametrize("line", documented_commands())
def test_documented_commands_are_understood(line, capsys):
    bash, script, *arguments = shlex.split(line)
    assert bash == "bash" and (REPOSITORY / script).is_file()
    word = WORD_OF_SCRIPT[Path(script).name]
    assert f"sweep {word} " in (REPOSITORY / script).read_text()
    assert dry_run(capsys, word, *arguments)


# --- GPUs


@pytest.mark.parametrize(
    "text",
    ["a/b-c.d", "x y", "it's", "a\\b", "a\\", r"a\'b", "007", "True", "null", "1e-6", "inf", "~/models/m", "0,1"],
)
def test_a_text_arrives_as_it_is(text):
    assert load_config("base", [f"trainer.experiment_name={quoted(text)}"]).trainer.experiment_name == text
