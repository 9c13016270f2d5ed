"""Gradient analysis: buckets, gradients against a slow twin, and no trace left in training."""

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ragen.algorithms.masked import token_weights
from ragen.algorithms.rollout_filter import fixed_rv_buckets, quantile_buckets, range_buckets
from ragen.config import load_config
from ragen.diagnostics.gradient_reporter import GradientReporter, analysis_env_set, folds
from ragen.modeling.attention.packed import packed_attention
from ragen.modeling.packing import pack
from ragen.tracking.glossary import unknown
from ragen.trainer.build import build_trainer
from tests.trainer import runs
from tests.trainer.runs import LAKE, Run

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
GRPO = "algorithm.adv_estimator=grpo"
REGULARIZED = (f"{ACTOR}.use_kl_loss=True", f"{ACTOR}.kl_loss_coef=0.01", f"{ACTOR}.entropy_coeff=0.01")
ON = "trainer.gradient_analysis_mode=True"
EVERY_STEP = "trainer.gradient_analysis_every=1"
SEPARATE = ("trainer.gradient_analysis_env_groups=5", "trainer.gradient_analysis_group_size=3")
ANALYSIS_NAMES = ("grad_norm", "grad_analysis", "actor/grad_norm/", "actor/loss/")


def train(root, *changes: str, env=runs.BANDIT) -> Run:
    return runs.train(root, ON, *changes, env=env)


# --- buckets


def test_quantile_buckets_differ_by_at_most_one_group():
    stds = {group: float(10 - group) for group in range(11)}
    buckets = quantile_buckets(stds, 6)
    assert [len(groups) for groups in buckets.values()] == [2, 2, 2, 2, 2, 1]
    assert buckets["bucket_1"] == [10, 9] and buckets["bucket_6"] == [0]
    assert list(quantile_buckets({3: 0.5, 4: 0.1}, 6).items()) == [("bucket_1", [4]), ("bucket_2", [3])]


def test_fixed_buckets_are_intervals_and_empty_ones_are_left_out():
    stds = {0: 0.0, 1: 0.99, 2: 1.0, 3: 4.5, 4: 5.0, 5: 70.0}
    assert fixed_rv_buckets(stds, 6) == {"bucket_1": [0, 1], "bucket_2": [2], "bucket_5": [3], "bucket_6": [4, 5]}


def test_buckets_by_mean_reward_are_the_pass_rates():
    rates = {group: group / 8 for group in (8, 3, 0, 5)}
    assert range_buckets(rates, 9) == {"bucket_1": [0], "bucket_4": [3], "bucket_6": [5], "bucket_9": [8]}
    assert range_buckets({1: 0.3, 2: 0.3}, 4) == {"bucket_1": [1, 2]}


def test_an_analysis_by_mean_reward_logs_it(tmp_path):
    mode = (f"{ROLLOUT}.gradient_analysis_bucket_mode=reward_mean", "es_manager.format_penalty=0")
    run = train(tmp_path, GRPO, EVERY_STEP, *SEPARATE, *mode, env=LAKE)
    row = run.metrics[1]
    means = [value for name, value in row.items() if name.endswith("/reward_mean") and "bucket_" in name]
    assert means == sorted(means) and len(set(means)) == len(means) > 1
    assert means[0] == 0 <= row["grad_norm/all/reward_mean"] <= means[-1]


def test_tags_of_the_analysis_batch_keep_their_proportions():
    env_set = load_config(
        "base",
        [
            "es_manager.train.env_groups=4",
            "es_manager.train.env_configs.tags=[Bandit,FrozenLake]",
            "es_manager.train.env_configs.n_groups=[3,1]",
            "es_manager.val.env_configs.tags=[Bandit]",
            "ppo_mini_batch_size=4",
        ],
    ).es_manager.train
    found = analysis_env_set(env_set, env_groups=6, group_size=None)
    assert (found.env_groups, found.group_size) == (6, env_set.group_size)
    assert found.env_configs.n_groups == (5, 1)
    assert analysis_env_set(env_set, env_groups=None, group_size=2).env_configs.n_groups == (3, 1)


# --- gradients against a slow twin


def slow_norms(actor, batch, indices) -> dict[str, tuple[float, float]]:
    """Norm and loss of each component over some samples, in one backward pass each."""
    part = batch.select(indices)
    mode = actor.config.loss_agg_mode
    part.weights = token_weights(part.mask, mode, horizon=batch.mask.shape[1])
    part.mean_weights = token_weights(part.mask, "token-mean")
    found = {}
    for component in ("task", "entropy", "kl"):
        packing = pack(part.ids, actor.device, mask=part.mask)
        with packed_attention(actor.model, packing):
            loss = actor.terms(part, packing)[0][component]
            loss.backward()
        grads = [weight.grad for weight in actor.model.parameters() if weight.grad is not None]
        found[component] = (torch.cat([grad.flatten() for grad in grads]).norm().item(), loss.item())
        actor.model.zero_grad(set_to_none=True)
    return found


@pytest.mark.parametrize("changes", [(), (GRPO, f"{ACTOR}.loss_agg_mode=seq-mean-token-mean"), ("lora.rank=4",)])
def test_every_bucket_has_the_gradient_of_its_own_mean(tmp_path, changes):
    """`all`, put together from the buckets, equals one pass over the batch."""
    settings = (*REGULARIZED, f"{ROLLOUT}.gradient_analysis_num_buckets=2", "es_manager.train.env_groups=5")
    trainer = build_trainer(runs.small_config(tmp_path, *settings, *changes, env=LAKE))
    assert trainer is not None
    with torch.no_grad():  # away from the reference, so that there is a KL to look at
        for weight in trainer.workers.actor.model.parameters():
            weight += 0.02 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
    seen = {}
    trainer.gradients.reporter.log_table = lambda step, name, columns, rows: seen.update({name: rows})
    score = trainer.gradients.reporter.score
    batches = []
    trainer.gradients.reporter.score = lambda groups, ratio: batches.append(score(groups, ratio)) or batches[-1]
    trainer.gradients.reporter.has_own_rollout = True
    metrics = trainer.gradients.reporter(1, [], None, None)  # type: ignore[arg-type]
    batch = batches[0]
    assert batch.reward_std.unique().numel() > 1, "groups do not vary: nothing is tested"
    for name in ("bucket_1", "bucket_2", "all"):
        groups = {group for _, group, _ in seen[f"grad_norm/{name}/group_rv_table"]}
        inside = [index for index, group in enumerate(batch.groups.tolist()) if group in groups]
        prefix = f"grad_norm/{name}"
        assert metrics[f"{prefix}/sample_count"] == len(inside)
        assert metrics[f"{prefix}/sample_pct"] == len(inside) / len(batch)
        for component, (norm, loss) in slow_norms(trainer.workers.actor, batch, inside).items():
            key = {"task": "policy"}.get(component, component)
            assert norm > 0 or name != "all"  # GRPO has nothing to say about a group without variance
            assert metrics[f"{prefix}/{component}"] == pytest.approx(norm, rel=2e-3)
            assert metrics[f"{prefix}/loss/{key}"] == pytest.approx(loss, rel=1e-3, abs=1e-6)
            assert metrics[f"{prefix}/per_sample/{component}"] == pytest.approx(norm / len(inside), rel=2e-3)
            tokens = batch.mask[inside].sum().item()
            assert metrics[f"{prefix}/per_token/{component}"] == pytest.approx(norm / tokens, rel=2e-3)
    assert metrics["actor/grad_norm/task"] == metrics["grad_norm/all/task"]
    assert metrics["actor/loss/total"] == pytest.approx(
        sum(metrics[f"actor/loss/{name}"] for name in ("policy", "entropy", "kl"))
    )
    for component in ("task", "entropy", "kl"):
        assert metrics[f"grad_norm/all/norm_low/{component}"] <= metrics[f"grad_norm/all/norm_high/{component}"]
        assert -1 <= metrics[f"grad_norm/all/split_half_cosine/{component}"] <= 1.0001
    assert all(-1.0001 <= metrics[f"grad_norm/all/cosine/{pair}"] <= 1.0001 for pair in ("task_entropy", "task_kl"))
    assert unknown(metrics) == []


def test_folds_are_whole_groups_and_hold_every_sample_once(tmp_path):
    trainer = build_trainer(runs.small_config(tmp_path, "es_manager.train.env_groups=4", GRPO, env=LAKE))
    assert trainer is not None
    batch = trainer.scorer.score_for_analysis(trainer.gradients.reporter.rollout(1), 1.0)
    parts = folds(batch, [0, 2, 3])
    assert sorted(index for part in parts for index in part) == [
        index for index, group in enumerate(batch.groups.tolist()) if group in (0, 2, 3)
    ]
    assert all(len({batch.groups[index].item() for index in part}) == 1 for part in parts)


# --- inside a run


def without_analysis(outcomes: dict) -> dict:
    return {
        step: {name: value for name, value in row.items() if not name.startswith(ANALYSIS_NAMES)}
        for step, row in outcomes.items()
    }


@pytest.mark.parametrize(
    "changes",
    [
        REGULARIZED,
        (*REGULARIZED, *SEPARATE, "trainer.gradient_analysis_log_prefilter=True"),
        (GRPO, *SEPARATE, "algorithm.use_kl_in_reward=True", "algorithm.kl_ctrl.type=adaptive"),
        (GRPO, "lora.rank=4", f"{ROLLOUT}.old_log_probs=engine"),
    ],
    ids=["ppo", "ppo separate prefilter", "adaptive kl", "lora"],
)
def test_training_is_bit_equal_with_and_without_analysis(tmp_path, changes):
    on = train(tmp_path / "on", *changes, EVERY_STEP, env=LAKE)
    off = train(tmp_path / "off", *changes, "trainer.gradient_analysis_mode=False", env=LAKE)
    assert all("grad_norm/all/task" in on.metrics[step] for step in (1, 2))
    assert not any(name.startswith(ANALYSIS_NAMES) for row in off.metrics.values() for name in row)
    assert without_analysis(on.outcomes) == off.outcomes
    assert on.tensor_bytes(2) == off.tensor_bytes(2)


def test_angles_of_a_gradient_that_is_rounding_are_not_logged(tmp_path):
    """At the first step the policy is the reference: what is left of the KL gradient is rounding."""
    first, second = map(train(tmp_path, *REGULARIZED, EVERY_STEP, env=LAKE).metrics.get, (1, 2))
    assert first is not None and second is not None
    assert first["grad_norm/all/kl"] < 1e-6 * first["grad_norm/all/entropy"] < second["grad_norm/all/kl"]
    angles = {"grad_norm/all/cosine/task_kl", "grad_norm/all/cosine/entropy_kl", "grad_norm/all/split_half_cosine/kl"}
    assert not angles & first.keys()
    assert angles <= second.keys()
    assert "grad_norm/all/cosine/task_entropy" in first and first["grad_norm/all/is_probed/kl"] == 1


def test_the_default_is_every_fifty_steps_on_the_training_batch(tmp_path):
    run = train(tmp_path, GRPO, f"{ROLLOUT}.rollout_filter_include_zero=True", env=LAKE)
    row = run.metrics[1]
    assert unknown(row) == []
    assert "grad_norm/all/task" not in run.metrics[2]
    assert row["grad_analysis/uses_training_batch"] == 1
    assert row["grad_norm/all/sample_count"] == row["train/batch_size"] == 12
    assert row["grad_norm/all/kl"] == row["grad_norm/all/per_token/kl"] == 0  # off, and said so
    assert sum(row[f"grad_norm/bucket_{number}/sample_count"] for number in (1, 2, 3)) == 12
    assert "grad_norm/bucket_4/task" not in row  # three groups, three buckets
    assert row["timing_s/gradient_analysis"] > 0
    table = json.loads((tmp_path / "tables" / "grad_norm.all.group_rv_table_step_1.json").read_text())
    assert table["columns"] == ["bucket", "group_id", "reward_std"] and len(table["rows"]) == 3


def test_a_separate_batch_has_its_own_shape_and_prefilter_twins(tmp_path):
    run = train(
        tmp_path,
        *REGULARIZED,
        *SEPARATE,
        "trainer.gradient_analysis_log_prefilter=True",
        f"{ROLLOUT}.rollout_filter_strategy=top_k",
        f"{ROLLOUT}.rollout_filter_value=0.6",
        "ppo_mini_batch_size=4",
        env=LAKE,
    )
    row = run.metrics[1]
    assert unknown(row) == []
    assert row["grad_analysis/uses_training_batch"] == 0
    assert (row["grad_analysis/source_env_groups"], row["grad_analysis/source_group_size"]) == (5, 3)
    assert row["grad_analysis/source_batch_size"] == row["grad_analysis_prefilter/adjusted_batch_size"] == 15
    kept = row["grad_analysis/filter_kept_count"]
    assert 0 < kept < 5
    assert row["grad_analysis/adjusted_batch_size"] == row["grad_norm/all/sample_count"] == 3 * kept
    assert row["grad_norm_prefilter/all/sample_count"] == 15
    assert row["grad_norm_prefilter/bucket_5/group_rv_count"] == 1
    stds = [row[f"grad_norm_prefilter/bucket_{number}/reward_std_mean"] for number in range(1, 6)]
    assert stds == sorted(stds)
    assert row["train/batch_size"] <= 12


def test_an_empty_training_step_is_analysed_on_the_separate_batch(tmp_path):
    run = train(
        tmp_path,
        GRPO,
        *SEPARATE,
        "trainer.gradient_analysis_log_prefilter=True",
        f"{ROLLOUT}.rollout_filter_strategy=top_p",
        f"{ROLLOUT}.rollout_filter_include_zero=False",
        f"{ROLLOUT}.response_length=1",
        "es_manager.format_penalty=0",
        "trainer.total_training_steps=1",
    )
    row = run.metrics[1]
    assert row["rollout/empty_after_filter"] == row["grad_analysis/empty_after_filter"] == 1
    assert "grad_norm/all/task" not in row
    assert row["grad_norm_prefilter/all/sample_count"] == 15


def test_an_analysis_says_how_far_it_has_come(tmp_path, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr("ragen.tracking.tracker.Trackers.stage", lambda self, name: said.append(name))

    def begin(self, total):
        said.append(f"of {total}")
        return lambda _: said.append("done")

    monkeypatch.setattr("ragen.tracking.tracker.Trackers.begin_episodes", begin)
    train(tmp_path, GRPO, EVERY_STEP, *SEPARATE, *REGULARIZED, "trainer.total_training_steps=1")
    start = said.index("gradient_analysis")
    told = [line for line in said[start:] if line != "done"]
    assert told[:3] == ["gradient_analysis", "gradient_analysis rollout", "of 15"]
    assert told[3] == "gradient_analysis scoring"
    stages = [line for line in told[4:] if line.startswith("gradient_analysis")]
    assert stages == [f"gradient_analysis bucket_{number} of 5: task, entropy, kl" for number in range(1, 6)]
    totals = []
    for index in (i for i, line in enumerate(said) if line in stages):
        totals.append(int(said[index + 1].removeprefix("of ")))
        assert said[index + 2 : index + 2 + totals[-1]] == ["done"] * totals[-1]
    assert sum(totals) == 15


def test_a_bucket_that_begins_again_is_counted_from_the_start():
    said: list[str] = []

    def begin(total: int):
        said.append(f"of {total}")
        return lambda _: said.append("done")

    reporter: Any = SimpleNamespace(on_stage=said.append, begin_episodes=begin)
    show = GradientReporter.progress(reporter, {"bucket_1": 2})
    for num_done in (0, 1, 0, 2):
        show("bucket_1", ["task", "kl"], num_done)
    stage = "gradient_analysis bucket_1 of 1: task, kl"
    assert said == [stage, "of 2", "done", stage, "of 2", "done", "done"]


def test_short_samples_go_together_as_far_as_a_micro_batch_of_long_ones_would(tmp_path):
    trainer = build_trainer(load_config("quickstart_bandit", [f"trainer.default_local_dir={tmp_path}"]))
    actor = trainer.workers.actor
    with trainer.running():
        groups, _ = trainer.choose_groups(trainer.rollout(1))
        batch = trainer.scorer(groups, kept_ratio=1.0, measured_seed=0)[0]
        object.__setattr__(actor.config, "ppo_micro_batch_size_per_gpu", 1)
        longer = replace(batch, ids=[3 * ids for ids in batch.ids], mask=batch.mask.repeat(1, 3))
        rooms = (None, actor.room(longer))
        alone, together = ([micro.lengths for micro, _ in actor.passes(batch, room=room)] for room in rooms)
    assert all(len(lengths) == 1 for lengths in alone) and len(alone) == len(batch)
    assert sum(map(len, together)) == len(batch) and len(together) <= len(batch) / 2
