"""What the keys of the update do in a whole training run."""

import math
from statistics import fmean, stdev

import pytest
import torch
from safetensors.torch import load_file

from ragen.algorithms.rollout_filter import FilterSettings, RolloutFilter
from ragen.modeling.load import load_model
from ragen.models.resolve import resolve_model
from ragen.tracking import names
from ragen.tracking.glossary import unknown
from ragen.tracking.rundir import read_table
from ragen.types import group_episodes
from tests.trainer.runs import BANDIT, LAKE, Run, small_config, train

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
GRPO = "algorithm.adv_estimator=grpo"
NO_ENTROPY = f"{ACTOR}.entropy_coeff=0"


def check_finite(run: Run) -> None:
    for row in run.metrics.values():
        assert unknown(row) == []
        assert all(math.isfinite(value) for value in row.values())


def distance(one: Run, other: Run, *, step: int = 2, role: str = "actor") -> float:
    """The largest difference between the weights of two runs."""
    before, after = one.weights(step, role), other.weights(step, role)
    assert before.keys() == after.keys()
    return max((before[name] - after[name]).abs().max().item() for name in before)


# --- losses


def test_the_policy_losses_train_and_differ(tmp_path):
    # From the second mini batch on the ratios are not 1, and tight bounds cut them.
    clips = [f"{ACTOR}.clip_ratio_low=0.001", f"{ACTOR}.clip_ratio_high=0.001", "ppo_mini_batch_size=4"]
    runs = {
        name: train(tmp_path / name, GRPO, *clips, f"{ACTOR}.policy_loss={name}", env=LAKE)
        for name in ("ppo", "gspo", "cispo", "sapo")
    }
    for name, run in runs.items():
        check_finite(run)
        assert (run.metrics[1]["actor/pg_clipfrac"] > 0) == (name != "sapo")  # which has no clip
    assert distance(runs["ppo"], runs["gspo"]) > 1e-5
    assert distance(runs["ppo"], runs["cispo"]) > 1e-5
    assert distance(runs["cispo"], runs["sapo"]) > 1e-5


def test_tokens_are_averaged_as_asked_for(tmp_path):
    """The entropy of the first batch by hand, from what the engine said of every token."""
    modes = {
        "token-mean": lambda rows: sum(map(sum, rows)) / sum(map(len, rows)),
        "seq-mean-token-sum": lambda rows: sum(map(sum, rows)) / len(rows),
        "seq-mean-token-mean": lambda rows: sum(sum(row) / len(row) for row in rows) / len(rows),
    }
    changes = ["trainer.total_training_steps=1", "trainer.val_before_train=False", "trainer.test_freq=0"]
    for mode, average in modes.items():
        run = train(tmp_path / mode, GRPO, f"{ACTOR}.loss_agg_mode={mode}", *changes, env=LAKE)
        rows = [[e for turn in episode.turns for e in turn.entropies] for episode in run.episodes(1)]
        assert run.metrics[1]["actor/entropy"] == pytest.approx(average(rows), abs=1e-3), mode


def test_a_sum_over_tokens_can_be_divided_by_a_fixed_length(tmp_path):
    changes = ["trainer.total_training_steps=1", "trainer.val_before_train=False", "trainer.test_freq=0"]
    whole, divided = (
        train(tmp_path / mode, GRPO, f"{ACTOR}.loss_agg_mode={mode}", *changes, env=LAKE).metrics[1]
        for mode in ("seq-mean-token-sum", "seq-mean-token-sum-norm")
    )
    ratio = whole["actor/entropy"] / divided["actor/entropy"]
    assert ratio == pytest.approx(whole["global_seqlen/max"], abs=1)  # the padded length


@pytest.mark.parametrize("kind", ["kl", "abs", "mse", "low_var_kl", "full", "k1+", "k3+"])
def test_every_kl_loss_trains(tmp_path, kind):
    run = train(
        tmp_path, GRPO, f"{ACTOR}.use_kl_loss=True", f"{ACTOR}.kl_loss_coef=0.1", f"{ACTOR}.kl_loss_type={kind}"
    )
    check_finite(run)
    last = run.metrics[2]
    assert last["actor/kl_coef"] == 0.1
    assert last["rollout/ref_log_prob"] < 0
    if kind in ("abs", "mse", "low_var_kl", "full"):
        assert last["actor/kl_loss"] > 0  # the policy has left the reference


def test_a_hyphen_in_the_name_of_a_kl_changes_nothing(tmp_path):
    kl = [GRPO, f"{ACTOR}.use_kl_loss=True", f"{ACTOR}.kl_loss_coef=0.1"]
    one = train(tmp_path / "1", *kl, f"{ACTOR}.kl_loss_type=low_var_kl")
    other = train(tmp_path / "2", *kl, f"{ACTOR}.kl_loss_type=low-var-kl")
    assert one.tensor_bytes(2) == other.tensor_bytes(2)


def test_a_strong_kl_loss_holds_the_policy_back(tmp_path):
    def drift(coefficient: float) -> float:
        kl = [f"{ACTOR}.use_kl_loss=True", f"{ACTOR}.kl_loss_coef={coefficient}", f"{ACTOR}.kl_loss_type=full"]
        changes = ["trainer.total_training_steps=4", "trainer.save_freq=-1", NO_ENTROPY]
        return train(tmp_path / str(coefficient), GRPO, *kl, *changes).metrics[4]["actor/kl_loss"]

    assert drift(100.0) < 0.5 * drift(0.0)


@pytest.mark.parametrize("kind", ["fixed", "adaptive"])
def test_the_kl_in_the_reward_is_subtracted_and_steered(tmp_path, kind):
    control = [f"algorithm.kl_ctrl.type={kind}", "algorithm.kl_ctrl.kl_coef=0.5", "algorithm.kl_ctrl.horizon=100"]
    changes = ["algorithm.use_kl_in_reward=True", "algorithm.kl_penalty=low_var_kl", "trainer.total_training_steps=3"]
    run = train(tmp_path, *control, *changes, "trainer.save_freq=-1")
    check_finite(run)
    coefficients = [run.metrics[step]["actor/reward_kl_penalty_coeff"] for step in (1, 2, 3)]
    if kind == "fixed":
        assert coefficients == [0.5, 0.5, 0.5]
    else:
        # The first KL is 0, far below the target: 12 samples, error -0.2, horizon 100.
        assert coefficients[:2] == pytest.approx([0.5, 0.5 * (1 - 0.2 * 12 / 100)])
    assert run.metrics[1]["actor/reward_kl_penalty"] == pytest.approx(0, abs=1e-6)
    second = run.metrics[2]
    assert second["actor/reward_kl_penalty"] > 0
    assert second["critic/rewards/mean"] < second["critic/score/mean"]


# --- rewards and advantages


def test_turn_scores_train(tmp_path):
    """The scores are spread over the turns; their sum stays."""
    by_turn = train(tmp_path / "turns", GRPO, "agent_proxy.use_turn_scores=True", env=LAKE)
    by_episode = train(tmp_path / "episodes", GRPO, env=LAKE)
    check_finite(by_turn)
    mean = sum(episode.score for episode in by_turn.episodes(1)) / 12
    for run in (by_turn, by_episode):
        assert run.metrics[1]["critic/score/mean"] == pytest.approx(mean, abs=1e-5)


@pytest.mark.parametrize("method", ["mean", "mean_std", "asym_clip"])
def test_normalised_rewards_train(tmp_path, method):
    changes = [f"agent_proxy.reward_normalization.method={method}", "agent_proxy.reward_normalization.grouping=batch"]
    run = train(tmp_path, "algorithm.adv_estimator=arpo", *changes)
    check_finite(run)
    row = run.metrics[2]
    if method == "asym_clip":  # standard deviations from -1 to 3
        assert -1 <= row["critic/score/min"] < 0 < row["critic/score/max"] <= 3
    else:
        assert row["critic/score/mean"] == pytest.approx(0, abs=1e-5)


def test_weighted_advantages_train(tmp_path):
    run = train(tmp_path, GRPO, "algorithm.soft_advantage_reweight=True", "grpo_advantage_length_weight=True")
    check_finite(run)
    assert run.metrics[2]["train/soft_reweight_max"] == pytest.approx(1, abs=1e-3)


def test_without_a_task_advantage_and_entropy_nothing_moves_but_the_weight_decay(tmp_path):
    changes = ["algorithm.zero_task_advantage=True", NO_ENTROPY, f"{ACTOR}.optim.weight_decay=0"]
    run = train(tmp_path, GRPO, *changes)
    assert run.metrics[2]["critic/advantages/max"] == run.metrics[2]["actor/grad_norm"] == 0


@pytest.mark.parametrize(("scaling", "factor"), [("linear", 1 / 3), ("sqrt", (1 / 3) ** 0.5)])
def test_the_loss_can_be_scaled_by_the_share_of_kept_groups(tmp_path, scaling, factor):
    one_of_three = [f"{ROLLOUT}.rollout_filter_strategy=top_k_abs", f"{ROLLOUT}.rollout_filter_value=1"]
    changes = [GRPO, *one_of_three, "ppo_mini_batch_size=4", "trainer.total_training_steps=1", "trainer.save_freq=-1"]
    plain = train(tmp_path / "plain", *changes).metrics[1]
    scaled = train(tmp_path / "scaled", *changes, f"{ACTOR}.filter_loss_scaling={scaling}").metrics[1]
    assert plain["rollout/filter_kept_count"] == 1
    assert scaled["critic/advantages/max"] == pytest.approx(factor * plain["critic/advantages/max"])


# --- the filter


@pytest.mark.parametrize(
    ("strategy", "value"), [("top_p", 0.9), ("top_k", 0.67), ("top_k_abs", 2), ("min_p", 0.5), ("z_score", 0.0)]
)
def test_every_filter_strategy_trains_on_the_groups_it_keeps(tmp_path, strategy, value):
    changes = [f"{ROLLOUT}.rollout_filter_strategy={strategy}", f"{ROLLOUT}.rollout_filter_value={value}"]
    run = train(tmp_path, GRPO, *changes, "trainer.log_group_rv_table=True", env=BANDIT)
    check_finite(run)
    for step in (1, 2):
        row = run.metrics[step]
        num_kept = row["rollout/filter_kept_count"]
        assert num_kept >= 1
        assert row["train/batch_size"] == 4 * num_kept
        assert row["rollout/filter_kept_ratio"] == pytest.approx(num_kept / 3)
        columns, rows = read_table(run.path, "rollout/group_rv_table", step)
        assert columns == ["step", "group_id", "reward_std", "selected"]
        assert sum(is_selected for at, *_, is_selected in rows if at == step) == num_kept


@pytest.mark.parametrize(
    "metric", ["reward", "reward_sum", "entropy", "entropy_variance", "length", "success_variance"]
)
def test_every_filter_metric_trains_and_keeps_the_reward_statistics(tmp_path, metric):
    changes = [f"{ROLLOUT}.rollout_filter_metric={metric}", f"{ROLLOUT}.rollout_filter_strategy=top_k_abs"]
    run = train(tmp_path, GRPO, *changes, f"{ROLLOUT}.rollout_filter_value=2")
    check_finite(run)
    rewards = [[episode.score for episode in group.episodes] for group in group_episodes(run.episodes(2))]
    assert run.metrics[2]["rollout/in_group_reward_std"] == pytest.approx(fmean(map(stdev, rewards)))


def test_a_filter_of_entropies_sees_those_of_the_policy_and_a_replay_sees_the_same(tmp_path):
    choice = {"metric": "entropy", "strategy": "top_k_abs", "value": 2}
    changes = [GRPO, *(f"{ROLLOUT}.rollout_filter_{name}={value}" for name, value in choice.items())]
    run = train(tmp_path, *changes, "trainer.total_training_steps=1")
    model = load_model(resolve_model("tiny/bandit"), device="cpu")
    means = []
    for episode in run.episodes(1):
        (turn,) = episode.turns
        with torch.no_grad():
            logits = model(torch.tensor([turn.prompt_ids + turn.response_ids])).logits[0, len(turn.prompt_ids) - 1 : -1]
        entropies = torch.distributions.Categorical(logits=logits).entropy()
        assert turn.entropies == pytest.approx(entropies.tolist(), abs=1e-4)
        assert turn.entropies == [round(entropy, 4) for entropy in turn.entropies]
        means.append(entropies.mean().item())
    metrics = run.metrics[1]
    assert metrics["rollout/in_group_entropy_mean"] == pytest.approx(sum(means) / len(means), abs=1e-4)
    settings = FilterSettings.from_config(small_config(tmp_path, *changes).actor_rollout_ref.rollout)
    replayed = names.with_prefix(names.FILTER, RolloutFilter(settings)(group_episodes(run.episodes(1))).metrics)
    assert replayed == {name: metrics[name] for name in replayed}


# --- what may not change the result


def test_gradient_checkpointing_changes_memory_and_not_the_weights(tmp_path):
    key = "actor_rollout_ref.model.enable_gradient_checkpointing"
    runs = [train(tmp_path / flag, f"{key}={flag}", env=LAKE) for flag in ("True", "False")]
    assert distance(*runs) < 1e-5
    assert distance(*runs, role="critic") < 1e-5


def test_chunked_entropy_changes_memory_and_not_the_weights(tmp_path):
    key = f"{ACTOR}.entropy_from_logits_with_chunking"
    runs = [train(tmp_path / flag, GRPO, f"{key}={flag}", env=LAKE) for flag in ("True", "False")]
    assert distance(*runs) < 1e-5


def test_the_size_of_micro_batches_does_not_change_the_weights(tmp_path):
    sizes = {
        "one": ["micro_batch_size_per_gpu=1"],
        "eight": ["micro_batch_size_per_gpu=8"],
        "tokens": [f"{ACTOR}.use_dynamic_bsz=True", f"{ACTOR}.ppo_max_token_len_per_gpu=1500"],
    }
    runs = {name: train(tmp_path / name, *changes, env=LAKE) for name, changes in sizes.items()}
    for name in ("one", "tokens"):
        replies = [
            [turn.response_ids for episode in runs[which].episodes(2) for turn in episode.turns]
            for which in (name, "eight")
        ]
        assert replies[0] == replies[1]  # the weights after the first step differ in their last digits only
        assert distance(runs[name], runs["eight"]) < 2e-4
        assert distance(runs[name], runs["eight"], role="critic") < 2e-4
        assert runs[name].metrics[2]["critic/vf_loss"] == pytest.approx(
            runs["eight"].metrics[2]["critic/vf_loss"], rel=1e-3
        )


def test_log_probs_of_the_engine_and_recomputed_ones_give_nearly_the_same_update(tmp_path):
    runs = [
        train(tmp_path / name, GRPO, f"{ROLLOUT}.old_log_probs={name}", "trainer.total_training_steps=1", env=LAKE)
        for name in ("recompute", "engine")
    ]
    for run in runs:
        assert run.metrics[1]["rollout/logprob_mismatch_max"] < 1e-3
    # Of all twelve samples, not of those on which log-probs are compared.
    entropies = [run.metrics[1]["actor/entropy"] for run in runs]
    assert entropies[1] == pytest.approx(entropies[0], abs=1e-4)
    start = load_file(resolve_model("tiny/frozen_lake") / "model.safetensors")
    updates = [torch.cat([(run.weights(1)[name] - weight).flatten() for name, weight in start.items()]) for run in runs]
    assert torch.cosine_similarity(*updates, dim=0) > 0.999


def test_importance_weights_of_an_exact_engine_are_one(tmp_path):
    run = train(tmp_path, GRPO, f"{ROLLOUT}.importance_cap=2", env=LAKE)
    check_finite(run)
    assert run.metrics[2]["rollout/importance_weight_mean"] == pytest.approx(1, abs=1e-3)


def test_the_same_command_gives_the_same_run(tmp_path):
    one, other = (train(tmp_path / name, env=LAKE) for name in "12")
    assert one.outcomes == other.outcomes
    assert one.tensor_bytes(2) == other.tensor_bytes(2)


def test_another_seed_gives_another_run(tmp_path):
    one, other = (train(tmp_path / seed, f"seed.train={seed}", env=LAKE) for seed in ("1", "2000"))
    assert one.metrics[0]["val-env/FrozenLake/success"] == other.metrics[0]["val-env/FrozenLake/success"]
    assert distance(one, other) > 1e-5


# --- schedules and epochs


def test_the_learning_rate_warms_up_and_is_logged(tmp_path):
    changes = [f"{ACTOR}.optim.lr_warmup_steps=4", "trainer.total_training_steps=3", "trainer.save_freq=-1"]
    run = train(tmp_path, GRPO, *changes)
    rates = [run.metrics[step]["actor/lr"] for step in (1, 2, 3)]
    assert rates == pytest.approx([0.25e-3, 0.5e-3, 0.75e-3])


def test_the_actor_waits_for_the_critic_to_warm_up(tmp_path):
    changes = ["trainer.critic_warmup=2", "trainer.save_freq=1", "trainer.max_actor_ckpt_to_keep=null"]
    run = train(tmp_path, *changes, "trainer.max_critic_ckpt_to_keep=null")
    before = load_file(resolve_model("tiny/bandit") / "model.safetensors")
    assert all(torch.equal(before[name], weight) for name, weight in run.weights(1).items())
    assert any(not torch.equal(before[name], weight) for name, weight in run.weights(2).items())
    assert "actor/pg_loss" not in run.metrics[1] and "actor/pg_loss" in run.metrics[2]
    assert "critic/vf_loss" in run.metrics[1]


def test_several_epochs_in_random_order_train(tmp_path):
    changes = [f"{ACTOR}.ppo_epochs=2", f"{ACTOR}.shuffle=True", "ppo_mini_batch_size=4"]
    one, other = (train(tmp_path / name, *changes) for name in "12")
    once = train(tmp_path / "once", "ppo_mini_batch_size=4")
    check_finite(one)
    assert one.tensor_bytes(2) == other.tensor_bytes(2)
    assert distance(one, once) > 1e-5


# --- environments and trackers


def test_several_environments_train_together(tmp_path):
    tags = "es_manager.{0}.env_configs.tags=[FrozenLake,CoordFrozenLake]"
    counts = ["es_manager.train.env_configs.n_groups=[2,1]", "es_manager.val.env_configs.n_groups=[1,3]"]
    run = train(tmp_path, GRPO, *(tags.format(kind) for kind in ("train", "val")), *counts, env=LAKE)
    check_finite(run)
    assert [episode.tag for episode in run.episodes(1)] == ["FrozenLake"] * 8 + ["CoordFrozenLake"] * 4
    for prefix in ("train", "val-env"):
        assert {f"{prefix}/FrozenLake/success", f"{prefix}/CoordFrozenLake/success"} <= run.metrics[2].keys()


def test_console_and_tensorboard_show_a_run(tmp_path, capsys):
    pytest.importorskip("tensorboard")
    run = train(tmp_path, GRPO, "trainer.logger=[console,tensorboard]")
    assert "  step 2/2  success " in capsys.readouterr().out
    assert list(run.path.glob("tensorboard/*tfevents*"))


def test_wandb_offline_keeps_a_run(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = train(tmp_path, GRPO, "trainer.logger=[wandb]")
    check_finite(run)
    assert list(run.path.glob("wandb/offline-run-*"))
