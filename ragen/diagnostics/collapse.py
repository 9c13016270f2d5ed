"""Signs of collapsing reasoning: do thoughts still depend on what they are about?

X is a prompt up to the opening think tag, Z the thought that followed. Each thought is scored after every prompt of a
sample: log p(z_i | x_j). While thoughts answer to their prompts, the own column stands out; a policy that writes the
same thought everywhere has well-formed replies, entropy perhaps, and no mutual information between X and Z.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import log
from typing import Any

import torch
from torch import Tensor

from ragen.config.schema import AgentProxyConfig, CollapseDetectionConfig
from ragen.learners.cross_scoring import distinct
from ragen.seeding import Rng
from ragen.tracking import names
from ragen.types import Episode, Metrics

RETRIEVAL_DEPTHS = (1, 2, 4, 8)

EpisodeTurn = tuple[Episode, int]
"""An episode and the index of one of its turns."""
CrossLogprobs = Callable[[Sequence[Sequence[int]], Sequence[Sequence[int]]], tuple[Tensor, Tensor]]
"""Prompts and continuations -> log-probs [continuations, prompts] summed over tokens, lengths [continuations]."""


class CollapseDetector:
    """Measures a batch of episodes at step 1 and every `compute_freq` steps; keeps running deviations."""

    def __init__(
        self,
        config: CollapseDetectionConfig,
        agent: AgentProxyConfig,
        *,
        cross_logprobs: CrossLogprobs,
        tokenizer: Any,
        seed: int,
        timer: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext(),
    ) -> None:
        """`timer` times the stages collapse_first_turn_step and collapse_multi_turn_step."""
        self.config, self.cross_logprobs, self.tokenizer = config, cross_logprobs, tokenizer
        self.seed, self.timer = seed, timer
        # Elsewhere the turns of an episode do not stand in one conversation, or there is no thought.
        self.is_on = config.compute_freq > 0 and agent.context_window_mode == "full" and agent.enable_think
        self.running_stds: dict[str, float] = {}
        """Metric name -> moving average."""

    def is_due(self, step: int) -> bool:
        return self.is_on and (step == 1 or step % self.config.compute_freq == 0)

    def __call__(self, episodes: Sequence[Episode], *, step: int) -> Metrics:
        """The metrics of all episodes of a step, before any filter."""
        turns = [(episode, index) for episode in episodes for index in range(len(episode.turns))]
        thoughtful = [turn for turn in turns if thought(turn)]
        firsts, first_thoughtful = (sum(index == 0 for _, index in found) for found in (turns, thoughtful))
        if not turns:
            return {}
        metrics = {
            "collapse/valid_thinking_rate": len(thoughtful) / len(turns),
            "collapse/first_turn_num_total": float(firsts),
            "collapse/first_turn_num_valid": float(first_thoughtful),
            "collapse/first_turn_valid_rate": first_thoughtful / firsts,
        }
        wanted = self.config.num_samples
        count = len(thoughtful) if wanted == "all" else wanted
        if self.config.first_turn_enabled:
            with self.timer("collapse_first_turn_step"):
                choice = [turn for turn in thoughtful if turn[1] == 0]
                rng = Rng(self.seed, "collapse", "first_turn", step)
                drawn = rng.sample(choice, min(count, len(choice)))
                metrics |= self.measure(names.FIRST_TURNS, drawn)
        if self.config.multi_turn_enabled:
            with self.timer("collapse_multi_turn_step"):
                drawn = draw_turns(thoughtful, count, Rng(self.seed, "collapse", "trajectory", step))
                metrics |= self.measure(names.ANY_TURNS, drawn)
        return metrics

    def measure(self, prefix: str, turns: Sequence[EpisodeTurn]) -> Metrics:
        """The metrics of a sample; none when all of it shares one prompt.

        Equal prompts are one column, whichever group or draw they come from: a prompt that counted twice would raise
        the bound log N beyond what any policy can reach.
        """
        prompts, own = distinct([tuple(prompt_ids(turn)) for turn in turns])
        if len(prompts) < 2:
            return {}
        thoughts = [self.tokenizer.encode(thought(turn), add_special_tokens=False) for turn in turns]
        sums, lengths = self.cross_logprobs(prompts, thoughts)
        metrics = matrix_metrics(sums, lengths, torch.tensor(own), std_eps=self.config.std_eps)
        decay, eps = self.config.ema_decay, self.config.std_eps
        for seq in ("", "_seq"):
            name, std = names.join(prefix, f"marginal_std_ema{seq}"), metrics[f"marginal_std{seq}"]
            running = decay * self.running_stds.get(name, std) + (1 - decay) * std
            self.running_stds[name] = metrics[f"marginal_std_ema{seq}"] = running
            metrics[f"mi_zscore_ema{seq}"] = metrics[f"mi{seq}_estimate"] / (running + eps)
        return names.with_prefix(prefix, metrics)

    def to_json(self) -> dict[str, float]:
        """The running deviations, for the checkpoint."""
        return dict(self.running_stds)

    def load(self, state: Mapping[str, float]) -> None:
        """Continue the running deviations of a checkpoint."""
        self.running_stds = dict(state)


def matrix_metrics(sums: Tensor, lengths: Tensor, own: Tensor, *, std_eps: float) -> Metrics:
    """Mutual information and retrieval from log-probs [thoughts, prompts], lengths and own columns [thoughts].

    Prompts are equally likely, so log p(z) = logsumexp_j log p(z | x_j) - log N, and the information of a pair is
    log p(z | x) - log p(z). Once with log-probs summed over the tokens ("seq"), once with their mean.

    sums [[log .6, log .2], [log .1, log .3]], lengths [1, 1], own [0, 1]
    -> p(z) = .4 and .2, so mi = log 1.5 = .405; retrieval_accuracy 1
    """
    means = sums / lengths.clamp(min=1)[:, None]
    metrics = {"mi_upper_bound": log(sums.shape[1])}
    for table, seq in ((means, ""), (sums, "_seq")):
        matched = table.gather(1, own[:, None])[:, 0]
        marginal = table.logsumexp(1) - log(table.shape[1])
        information, std = (matched - marginal).mean().item(), marginal.std(correction=0).item()
        metrics |= {
            f"mi{seq}_estimate": information,
            f"conditional_entropy{seq}_est": -matched.mean().item(),
            f"reasoning_entropy{seq}_est": -marginal.mean().item(),
            f"marginal_std{seq}": std,
            f"mi_zscore{seq}": information / (std + std_eps),
        }
    metrics["matched_log_prob_mean"] = -metrics["conditional_entropy_est"]
    metrics["marginal_log_prob_mean"] = -metrics["reasoning_entropy_est"]
    return metrics | _retrieval(means, own)


def _retrieval(table: Tensor, own: Tensor) -> Metrics:
    """How often the own prompt is among the k best; prompts that tie share the ranks they take.

    A policy blind to its prompts gives ties everywhere and is retrieved at chance level, not always.
    """
    num_prompts = table.shape[1]
    matched = table.gather(1, own[:, None])
    num_better, num_equal = (table > matched).sum(1), (table == matched).sum(1)
    metrics = {}
    for depth in RETRIEVAL_DEPTHS:
        at = "" if depth == 1 else f"@{depth}"
        accuracy = ((depth - num_better) / num_equal).clamp(0, 1).mean().item()
        chance = min(1.0, depth / num_prompts)
        metrics |= {
            f"retrieval_accuracy{at}": accuracy,
            f"retrieval_chance_level{at}": chance,
            f"retrieval_above_chance{at}": accuracy - chance,
        }
    return metrics


def draw_turns(turns: Sequence[EpisodeTurn], count: int, rng: Rng) -> list[EpisodeTurn]:
    """At most `count` different turns: an episode that has some left, then one of its turns, each equally likely.

    So short episodes weigh as much as long ones while there are many more turns than draws.
    """
    turns_of: dict[int, list[EpisodeTurn]] = {}
    for turn in turns:
        turns_of.setdefault(id(turn[0]), []).append(turn)
    open_episodes, drawn = list(turns_of.values()), []
    while open_episodes and len(drawn) < count:
        chosen = rng.below(len(open_episodes))
        left = open_episodes[chosen]
        drawn.append(left.pop(rng.below(len(left))))
        if not left:
            del open_episodes[chosen]
    return drawn


def thought(turn: EpisodeTurn) -> str:
    episode, index = turn
    return episode.turns[index].thought.strip()


def prompt_ids(turn: EpisodeTurn) -> list[int]:
    """What the engine had read when the turn's thought began, in `full` context mode.

    Prompts end with the opening think tag, forced or written by the chat template.
    """
    episode, index = turn
    before = [token for turn in episode.turns[:index] for token in turn.prompt_ids + turn.response_ids]
    return before + episode.turns[index].prompt_ids
