"""From kept groups to a batch that can be trained on: log-probs, values, rewards, advantages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from ragen.algorithms.advantage import AdvantageInputs, compute_advantages, postprocess
from ragen.algorithms.gigpo import discounted_returns, number_anchors
from ragen.algorithms.kl import KlController, kl_in_reward, token_kl
from ragen.algorithms.losses import importance_weights
from ragen.algorithms.masked import masked_mean, masked_var, token_weights
from ragen.algorithms.own_parts import checked_estimates
from ragen.algorithms.reward_norm import normalize_scores
from ragen.algorithms.rollout_filter import deviation
from ragen.config.schema import Config
from ragen.learners.batch import Batch, make_batch
from ragen.llm_agent.ctx_manager import to_samples
from ragen.seeding import Rng
from ragen.tracking.names import EXPLAINED_VARIANCE, LOGPROB_MISMATCH, TRAIN, with_prefix
from ragen.trainer.incentives import invalid_advantages
from ragen.types import Group, Metrics, Sample
from ragen.workers.base import Workers

Timer = Callable[[str], AbstractContextManager[None]]

NUM_MEASURED = 8
"""Samples, drawn at random, on which engine and trainer are compared when the engine's log-probs are used."""


ADVANTAGE_DECIMALS = 4
"""Of the advantages that episodes keep, as of their entropies."""


def samples_of(groups: Sequence[Group], config: Config) -> list[Sample]:
    """The training sequences of groups, with normalised scores."""
    agent = config.agent_proxy
    episodes = [episode for group in groups for episode in group.episodes]
    norm = agent.reward_normalization
    scores = normalize_scores(episodes, grouping=norm.grouping, method=norm.method)
    return to_samples(
        episodes,
        scores,
        is_full_context=agent.context_window_mode == "full",
        use_turn_scores=agent.use_turn_scores,
    )


class Scorer:
    """Scores batches as the configuration says; holds the weight of the KL in the reward."""

    def __init__(self, config: Config, workers: Workers, *, timer: Timer, train_seed: int) -> None:
        self.config, self.workers, self.timer, self.train_seed = config, workers, timer, train_seed
        self.load(None)

    def __call__(self, groups: Sequence[Group], *, kept_ratio: float, measured_seed: int) -> tuple[Batch, Metrics]:
        """A scored batch and what is known about it. `measured_seed` draws the samples of which some metrics are."""
        samples = samples_of(groups, self.config)
        reward_stds = {group.group_id: deviation([episode.score for episode in group.episodes]) for group in groups}
        batch = make_batch(samples, reward_stds)
        metrics = self._policy_logprobs(batch, measured_seed)
        if self.config.uses_reference:
            with self.timer("ref"):
                batch.ref_logprobs = self.workers.ref_logprobs(batch)
            metrics["rollout/ref_log_prob"] = masked_mean(batch.ref_logprobs, batch.mask).item()
        if self.config.uses_critic:
            with self.timer("values"):
                batch.values = self.workers.values(batch)
        with self.timer("adv"):
            metrics |= self._rewards(batch)
            metrics |= _advantages(batch, samples, self.config, kept_ratio)
            assert batch.advantages is not None
            metrics |= invalid_advantages(batch.advantages, batch.mask, samples)
        return batch, metrics | data_metrics(batch)

    def score_for_analysis(self, groups: Sequence[Group], kept_ratio: float) -> Batch:
        """Score groups without a trace in the KL controller, the stage times or the metrics."""
        other = copy(self)
        other.kl_controller, other.timer = copy(self.kl_controller), lambda stage: nullcontext()
        return other(groups, kept_ratio=kept_ratio, measured_seed=self.train_seed)[0]

    def to_json(self) -> dict[str, Any]:
        """The KL controller, for the checkpoint."""
        return self.kl_controller.to_json()

    def load(self, state: Mapping[str, Any] | None) -> None:
        """The KL controller of a checkpoint; None starts with the configured weight."""
        self.kl_controller = KlController.from_config(self.config.algorithm.kl_ctrl, state)

    def _policy_logprobs(self, batch: Batch, measured_seed: int) -> Metrics:
        """Old log-probs from the trainer or from the engine, the entropy, and how far trainer and engine are apart.

        With the engine's, the difference is measured on a few samples only: that pass is what is saved.
        """
        rollout, actor = self.config.actor_rollout_ref.rollout, self.config.actor_rollout_ref.actor
        is_recomputed = rollout.old_log_probs == "recompute"
        measured = batch if is_recomputed else batch.select(drawn_samples(len(batch), seed=measured_seed))
        with self.timer("old_log_prob"):
            logprobs, entropies = self.workers.logprobs(measured)
        batch.old_logprobs = logprobs if is_recomputed else batch.engine_logprobs
        if not is_recomputed:
            assert batch.engine_entropies is not None, "engines that train tell entropies"
            entropies = batch.engine_entropies
        difference = (logprobs - measured.engine_logprobs).detach().abs() * measured.mask
        metrics = {
            "actor/entropy": (entropies * token_weights(batch.mask, actor.loss_agg_mode)).sum().item(),
            LOGPROB_MISMATCH: masked_mean(difference, measured.mask).item(),
            "rollout/logprob_mismatch_max": difference.max().item(),
        }
        if rollout.importance_cap is not None:
            batch.importance = importance_weights(logprobs, batch.engine_logprobs, cap=rollout.importance_cap)
            metrics["rollout/importance_weight_mean"] = masked_mean(batch.importance, batch.mask).item()
        return metrics

    def _rewards(self, batch: Batch) -> Metrics:
        """Token rewards: the scores, less the weighted KL to the reference where that is asked for."""
        if not self.config.algorithm.use_kl_in_reward:
            batch.token_rewards = batch.scores
            return {}
        assert batch.old_logprobs is not None and batch.ref_logprobs is not None
        beta = self.kl_controller.value
        kl = token_kl(batch.old_logprobs, batch.ref_logprobs, self.config.algorithm.kl_penalty)
        batch.token_rewards, current_kl = kl_in_reward(batch.scores, kl, batch.mask, beta=beta)
        self.kl_controller.update(current_kl, len(batch))
        return {"actor/reward_kl_penalty": current_kl, "actor/reward_kl_penalty_coeff": beta}


def note_advantages(groups: Sequence[Group], batch: Batch) -> None:
    """Write into each turn of the groups of a batch what its tokens are trained with."""
    assert batch.advantages is not None
    # Samples hold the turns in the order of the episodes, and the mask is 1 exactly on their replies.
    tokens = iter((batch.advantages[batch.mask.bool()].double().round(decimals=ADVANTAGE_DECIMALS) + 0.0).tolist())
    for turn in (turn for group in groups for episode in group.episodes for turn in episode.turns):
        values = list(islice(tokens, len(turn.response_ids)))
        turn.advantages = values[:1] if len(set(values)) == 1 else values
    assert next(tokens, None) is None, "a sampled token belongs to no turn"


def drawn_samples(num_samples: int, *, seed: int) -> list[int]:
    """The samples on which engine and trainer are compared, in their order."""
    indices = list(range(num_samples))
    Rng(seed, "measured").shuffle(indices)
    return sorted(indices[:NUM_MEASURED])


def _advantages(batch: Batch, samples: Sequence[Sample], config: Config, kept_ratio: float) -> Metrics:
    algorithm, actor = config.algorithm, config.actor_rollout_ref.actor
    assert batch.token_rewards is not None
    if "turns" in algorithm.needs:
        _add_turns(batch, samples, gamma=algorithm.high_level_gamma)
    inputs = AdvantageInputs(
        token_rewards=batch.token_rewards,
        mask=batch.mask,
        groups=batch.groups,
        episodes=batch.episodes,
        entropies=batch.engine_entropies,
        values=batch.values,
        turn_ends=batch.turn_ends,
        turn_ids=batch.turn_ids,
        anchors=batch.anchors,
        step_returns=batch.step_returns,
        gamma=algorithm.gamma,
        lam=algorithm.lam,
        high_level_gamma=algorithm.high_level_gamma,
        norm_by_std=algorithm.norm_adv_by_std_in_grpo,
        step_weight=algorithm.gigpo_step_weight,
    )
    found = compute_advantages(algorithm.estimator, inputs)
    advantages, batch.returns = checked_estimates(algorithm.estimator, found, batch.mask)
    batch.advantages, metrics = postprocess(
        advantages,
        inputs,
        soft_reweight=algorithm.soft_advantage_reweight,
        filter_loss_scaling=actor.filter_loss_scaling,
        kept_ratio=kept_ratio,
        length_weight=actor.grpo_advantage_length_weight,
        zero_task_advantage=algorithm.zero_task_advantage,
    )
    return with_prefix(TRAIN, metrics)


def _add_turns(batch: Batch, samples: Sequence[Sample], *, gamma: float) -> None:
    """Which turn each token belongs to, the state it started from and what followed it."""
    turn_ids = torch.full(batch.mask.shape, -1)
    for row, sample in enumerate(samples):
        for number, (start, end) in enumerate(sample.turn_spans):
            turn_ids[row, start:end] = number
    batch.turn_ids = turn_ids
    batch.anchors = number_anchors([sample.turn_states for sample in samples])
    # In the turn-level modes the turns of an episode are rows of their own, one after another.
    rewards: dict[int, list[float]] = {}
    for episode, sample in zip(batch.episodes.tolist(), samples, strict=True):
        rewards.setdefault(episode, []).extend(sample.turn_rewards)
    returns = {episode: iter(row) for episode, row in zip(rewards, discounted_returns([*rewards.values()], gamma))}
    batch.step_returns = torch.zeros(batch.anchors.shape)
    for row, (episode, sample) in enumerate(zip(batch.episodes.tolist(), samples, strict=True)):
        for turn in range(len(sample.turn_rewards)):
            batch.step_returns[row, turn] = next(returns[episode])


def data_metrics(batch: Batch) -> Metrics:
    """Mean, max and min of scores, rewards, advantages, returns and values, and lengths."""
    metrics: Metrics = {}

    def add(name: str, values: Tensor) -> None:
        if values.numel():
            for statistic in ("mean", "max", "min"):
                metrics[f"{name}/{statistic}"] = getattr(values, statistic)().item()

    is_masked = batch.mask.bool()
    add("critic/score", batch.scores.sum(-1))
    if batch.token_rewards is not None:
        add("critic/rewards", (batch.token_rewards * batch.mask).sum(-1))
    for name, tensor in (("advantages", batch.advantages), ("returns", batch.returns), ("values", batch.values)):
        if tensor is not None:
            add(f"critic/{name}", tensor[is_masked])
    if batch.values is not None and batch.returns is not None and is_masked.sum() > 1:
        unexplained = masked_var(batch.returns - batch.values, batch.mask)
        metrics[EXPLAINED_VARIANCE] = 1 - (unexplained / (masked_var(batch.returns, batch.mask) + 1e-5)).item()
    lengths = torch.tensor(batch.lengths, dtype=torch.float32)
    add("response_length", batch.mask.sum(-1))
    add("prompt_length", lengths - batch.mask.sum(-1))
    add("global_seqlen", lengths)
    return metrics
