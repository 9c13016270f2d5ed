"""The glossary is what runs log: every logged name has a line, and every line is logged by one of these runs."""

import itertools
import json
import re
from pathlib import Path

import pytest

from ragen.cli import main as ragen
from ragen.engine.drafts import DraftCounts
from ragen.sft.command import run_sft
from ragen.sft.config import load_sft
from ragen.tracking import names
from ragen.tracking.glossary import PLACEHOLDERS, pattern_of, read_glossary, unknown
from ragen.tracking.rundir import read_metrics, read_status
from tests.trainer.runs import SMALL, train

ACTOR, ROLLOUT, TRAINER = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "trainer"
ANALYSIS = (f"{TRAINER}.gradient_analysis_mode=True", f"{TRAINER}.gradient_analysis_every=1")
TWO_GAMES = (
    "es_manager.train.env_configs.tags=[FrozenLake,TwoArmedBandit]",
    "es_manager.train.env_configs.n_groups=[4,4]",
    "es_manager.train.env_groups=8",
    "es_manager.val.env_configs.n_groups=[2,2]",
    "model_path=tiny/frozen_lake",
    "agent_proxy.max_turn=2",
)
LAKE = ("es_manager.train.env_configs.tags=[FrozenLake]", "agent_proxy.max_turn=2")

PPO = (
    "algorithm.adv_estimator=gae",
    "algorithm.use_kl_in_reward=True",
    f"{ACTOR}.use_kl_loss=True",
    f"{ACTOR}.kl_loss_coef=0.1",
    f"{ACTOR}.entropy_coeff=0.01",
    f"{ROLLOUT}.rollout_filter_strategy=top_k",
    f"{ROLLOUT}.rollout_filter_value=0.7",
    f"{ROLLOUT}.rollout_filter_include_zero=True",
    "es_manager.val.group_size=4",
    f"{ROLLOUT}.importance_cap=2.0",
    f"{TRAINER}.val_greedy=True",
    f"{TRAINER}.log_group_rv_table=True",
    f"{TRAINER}.gradient_analysis_log_prefilter=True",
    "collapse_detection.compute_freq=1",
    *ANALYSIS,
)
GRPO = (
    "algorithm.adv_estimator=grpo",
    "es_manager.train.levels=pass_rate",
    "es_manager.train.level_pool.size=8",
    "es_manager.train.refill=1",
    "lora.rank=4",
    "algorithm.soft_advantage_reweight=True",
    "es_manager.reward_function=tests.api.own:half_reward",
    f"{TRAINER}.metric_function=tests.api.own:lengths",
    f"{TRAINER}.exit_after_gradient_analysis=True",
    *ANALYSIS,
)
ANALYSIS_ONLY = ("algorithm.adv_estimator=gae", f"{TRAINER}.gradient_analysis_only=True", *ANALYSIS)
STOPS = {
    "reward_variance_collapse": (
        f"{ROLLOUT}.rollout_filter_metric=entropy",
        f"{TRAINER}.early_stop.variance_baseline_steps=1",
        f"{TRAINER}.early_stop.variance_window=1",
        f"{TRAINER}.early_stop.variance_factor=1.0",
        f"{TRAINER}.total_training_steps=8",
    ),
    "low_validation_success": (
        f"{ROLLOUT}.rollout_filter_metric=length",
        f"{TRAINER}.early_stop.min_val_success=1.0",
        f"{TRAINER}.early_stop.low_success_patience=1",
    ),
    "empty_filtered_steps": (
        f"{ROLLOUT}.rollout_filter_metric=success_variance",
        f"{ROLLOUT}.rollout_filter_strategy=z_score",
        f"{ROLLOUT}.rollout_filter_value=100",
        f"{ROLLOUT}.rollout_filter_empty_stop_steps=1",
    ),
}
"""Rule -> a run that it ends; each filters by another quantity."""

ELSEWHERE = {
    "rollout/canary_logprob_diff": "vLLM logs it: tests/vllm",
    **dict.fromkeys(DraftCounts(checks=1).metrics(), "the graph engine logs it: tests/engine/test_graph_verify.py"),
    "rollout/sleep_freed_gb": "vLLM logs it: tests/vllm",
    "<rollout>/<tag>/<info>": "an environment of one's own reports it",
}
"""Lines that no run here can log, and who does."""


def names_of(run: Path) -> set[str]:
    tables = [json.loads(file.read_text())["name"] for file in run.glob("tables/*.json")]
    return {name for row in read_metrics(run) for name in row if name != "step"} | set(tables)


@pytest.fixture(scope="module")
def logged(tmp_path_factory) -> set[str]:
    """What real, short runs log."""
    root = tmp_path_factory.mktemp("logged")
    train(root / "ppo", *PPO, env=TWO_GAMES)
    train(root / "grpo", *GRPO, env=LAKE)
    train(root / "analysis", *ANALYSIS_ONLY, f"{TRAINER}.total_training_steps=1", env=LAKE)
    for rule, changes in STOPS.items():
        train(root / rule, *changes, *ANALYSIS, f"{TRAINER}.test_freq=1", env=LAKE)
        assert read_status(root / rule)["early_stop"] == rule
    run_sft(*load_sft("base", [*SMALL, *LAKE, f"sft.output_dir={root}/sft", "sft.train_size=16", "sft.val_size=8"]))
    val = ["env_groups=4", "env_configs.n_groups=[4]", "env_configs.tags=[TwoArmedBandit]"]
    assert (
        ragen(
            [
                "eval",
                "tiny",
                "--config-name",
                "_1_bandit",
                "--out",
                f"{root}/eval",
                *(f"es_manager.val.{change}" for change in val),
            ]
        )
        == 0
    )
    tools = ["eval", "tiny/sokoban", "--config-name", "calculator", "--out", f"{root}/tools"]
    assert ragen([*tools, "es_manager.val.env_groups=2", "es_manager.val.env_configs.n_groups=[2]"]) == 0
    return {name for run in root.iterdir() for name in names_of(run)}


def test_every_logged_name_has_a_line(logged):
    assert sorted(unknown(logged)) == []


def test_every_line_is_logged(logged):
    assert sorted(read_glossary().keys() - {pattern_of(name) for name in logged}) == sorted(ELSEWHERE)


def test_every_choice_of_a_placeholder_is_logged(logged):
    """<rollout>, <rule>, <component> and the like stand for a few words; each of them is logged somewhere."""
    missing = []
    for placeholder, choices in PLACEHOLDERS.items():
        patterns = [pattern for pattern in read_glossary() if f"<{placeholder}>" in pattern]
        patterns = ["<rollout>/<tag>/success"] if placeholder == "rollout" else patterns
        words = [word for word in choices.split("|") if re.fullmatch(r"[\w-]+", word)]
        for pattern, word in itertools.product(patterns, words if len(words) > 1 else []):
            chosen = pattern.replace(f"<{placeholder}>", word)
            regex = re.sub(r"<(\w+)>", lambda match: f"(?:{PLACEHOLDERS[match[1]]})", chosen)
            if pattern not in ELSEWHERE and not any(re.fullmatch(regex, name) for name in logged):
                missing.append(f"{pattern} with {word}")
    assert missing == []


def test_every_name_that_is_read_back_is_logged(logged):
    constants = [value for key, value in vars(names).items() if key.isupper() and isinstance(value, str)]
    read_back = {name for name in constants if "/" in name} | {*names.KL_TO_REFERENCE, *names.ENTROPIES}
    # A rollout's own, such as format/valid, stand behind the name of the rollout.
    found = logged | {name.partition("/")[2] for name in logged}
    assert sorted(read_back - found) == []
