"""The update looked at closely: with a part of the groups, written naively, its memory and its kernels."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from parts.trainer import BenchTrainer
from torch.nn.utils.rnn import pad_sequence
from torch.utils._python_dispatch import TorchDispatchMode

from ragen.algorithms.entropy import CHUNK_SIZE, head_logprobs
from ragen.algorithms.rollout_filter import FilterSettings, RolloutFilter
from ragen.learners.batch import Batch
from ragen.modeling import packing
from ragen.modeling.model import logits_of
from ragen.tracking import names
from ragen.trainer.starting.memory import GIB
from ragen.types import Metrics, group_episodes

SCORING = ("old_log_prob", "ref", "values", "adv")
"""Stages between rollout and update."""
KEPT = (1.0, 0.75, 0.5, 0.25)
"""Shares of the groups."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptCost:
    """Scoring and update with a part of the groups."""

    num_groups: int
    num_tokens: int
    scoring: float
    update: float


def scored(trainer: BenchTrainer, ratio: float) -> tuple[int, Batch]:
    """Number of groups of the last rollout that the filter keeps, and their samples, ready for an update."""
    kept = RolloutFilter(FilterSettings(strategy="top_k", value=ratio))(group_episodes(trainer.episodes))
    batch, _ = trainer.scorer(kept.kept, kept_ratio=kept.kept_ratio, measured_seed=0)
    return len(kept.kept), batch


def measure_kept(trainer: BenchTrainer, repeats: int) -> dict[float, list[KeptCost]]:
    """The groups of the last rollout, filtered to each ratio in turn, scored and trained on."""
    found = {ratio: [] for ratio in KEPT}
    for _ in range(repeats):
        for ratio in KEPT:
            num_groups, batch = scored(trainer, ratio)
            with trainer.timers("update_actor"):
                trainer.workers.update_actor(batch, step=1)
            seconds = trainer.timers.finish_step()
            found[ratio].append(
                KeptCost(
                    num_groups=num_groups,
                    num_tokens=batch.num_tokens,
                    scoring=sum(seconds.get(names.seconds(stage), 0.0) for stage in SCORING),
                    update=seconds[names.seconds("update_actor")],
                )
            )
    return found


@contextmanager
def nothing_shared() -> Iterator[None]:
    """Sequences are packed whole, whatever they have in common."""
    usual = packing.MIN_SHARED
    packing.MIN_SHARED = sys.maxsize
    try:
        yield
    finally:
        packing.MIN_SHARED = usual


def measure_shared(trainer: BenchTrainer, repeats: int) -> list[str]:
    """Scoring and update of the last rollout with common beginnings once and with whole sequences, taking turns."""
    found: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for number in range(repeats + 1):
        for is_shared in found:
            with nullcontext() if is_shared else nothing_shared():
                _, batch = scored(trainer, 1.0)
                with trainer.timers("update_actor"):
                    trainer.workers.update_actor(batch, step=1)
            seconds = trainer.timers.finish_step()
            if number:
                scoring = sum(seconds.get(names.seconds(stage), 0.0) for stage in SCORING)
                found[is_shared].append((scoring, seconds[names.seconds("update_actor")]))
    _, batch = scored(trainer, 1.0)
    common = sum(packing.shared_with_previous(batch.ids, packing.by_beginning(batch.ids)))
    lines = [
        f"grpo with common beginnings once: at best {1 - common / batch.num_tokens:.1%} of {batch.num_tokens} tokens",
        f"{'':<8}{'scoring':>9}{'update':>9}",
    ]
    for is_shared, rounds in found.items():
        scoring, update = (statistics.median(column) for column in zip(*rounds, strict=True))
        lines.append(f"{'shared' if is_shared else 'whole':<8}{scoring:>9.3f}{update:>9.3f}")
    return lines


def measure_naive(trainer: BenchTrainer, micro_batch: int) -> float:
    """Seconds of the actor's update as it is often written: padded passes of the modules as they come, and a head over
    all tokens, its logits in chunks that are computed again for the gradient. The second of two counts."""
    actor = trainer.workers.actor
    _, batch = scored(trainer, 1.0)
    assert batch.advantages is not None
    actor.model.train()
    seconds = 0.0
    for _ in range(2):
        started = time.perf_counter()
        for mini in torch.arange(len(batch)).chunk(2):
            for chosen in mini.split(micro_batch):
                micro = batch.select(chosen.tolist())
                assert micro.advantages is not None
                ids = pad_sequence([torch.tensor(row) for row in micro.ids], batch_first=True)
                is_token = torch.arange(ids.shape[1]) < torch.tensor(micro.lengths)[:, None]
                ids, is_token, advantages = (x.to(actor.device) for x in (ids, is_token, micro.advantages))
                output = actor.model.base_model(input_ids=ids, attention_mask=is_token.long(), use_cache=False)
                logprobs, entropies = head_logprobs(
                    output.last_hidden_state[:, :-1].flatten(0, 1),
                    partial(logits_of, actor.model),
                    ids[:, 1:].flatten(),
                )
                (-(logprobs * advantages[:, 1:].flatten()).mean() - 0.001 * entropies.mean()).backward()
            actor.optimizer.step(1)
        seconds = time.perf_counter() - started  # the gradient norm was waited for
    actor.model.eval()
    return seconds


class LargestTensor(TorchDispatchMode):
    """Watches every operation for the largest tensor that comes out of it."""

    num_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, torch.Tensor):
                self.num_bytes = max(self.num_bytes, tensor.numel() * tensor.element_size())
        return result


def loss_memory(model: Any, num_tokens: int = 16_384) -> str:
    """What the log-probs and entropies of sampled tokens, and their gradient, need beside weights and hidden states."""
    from ragen.modeling.kernels.head import head_logprobs as fused_logprobs

    weight = model.get_output_embeddings().weight
    hidden = torch.randn(num_tokens, weight.shape[1], dtype=weight.dtype, device="cuda", requires_grad=True)
    targets = torch.zeros(num_tokens, dtype=torch.long, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    with LargestTensor() as largest:
        logprobs, entropies = fused_logprobs(hidden, weight, targets, temperature=1.0, chunk_size=CHUNK_SIZE)
        torch.autograd.grad(logprobs.sum() + entropies.sum(), (hidden, weight))
    peak = torch.cuda.max_memory_allocated() - before
    whole = num_tokens * len(weight) * 4
    return (
        f"loss of {num_tokens} tokens over {len(weight)} words: {peak / GIB:.2f} GiB at most, largest tensor "
        f"{largest.num_bytes / GIB:.2f} GiB; all logits in float32 would be {whole / GIB:.2f} GiB"
    )


def profile(trainer: BenchTrainer, num_lines: int = 25) -> list[str]:
    """Kernels of the actor's update of one step, by time."""
    update = trainer.workers.update_actor
    trace = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])

    def profiled(batch: Batch, *, step: int) -> Metrics:
        with trace:
            return update(batch, step=step)

    trainer.workers.update_actor = profiled  # type: ignore[method-assign]
    trainer.timed_step(1)
    trainer.workers.update_actor = update  # type: ignore[method-assign]
    events = sorted(trace.key_averages(), key=lambda event: -event.self_device_time_total)
    total = sum(event.self_device_time_total for event in events)
    lines = [f"kernels of the actor's update: {total / 1e3:.0f} ms", f"{'ms':>8}{'share':>8}{'calls':>8}{'us/call':>9}"]
    for event in events[:num_lines]:
        spent = event.self_device_time_total
        lines.append(
            f"{spent / 1e3:>8.1f}{spent / total:>8.1%}{event.count:>8}{spent / event.count:>9.1f}  {event.key[:90]}"
        )
    return lines


def kept_table(costs: dict[float, list[KeptCost]]) -> list[str]:
    def median(ratio: float, name: str) -> float:
        return statistics.median(getattr(cost, name) for cost in costs[ratio])

    lines = [
        "grpo by the share of groups that the filter keeps, one rollout",
        f"{'kept':<6}{'groups':>8}{'tokens':>9}{'share':>8}{'scoring':>9}{'update':>9}{'of full':>9}{'/ share':>9}",
    ]
    for ratio, (cost, *_) in costs.items():
        share = cost.num_tokens / costs[1.0][0].num_tokens
        scoring, update = median(ratio, "scoring"), median(ratio, "update")
        of_full = update / median(1.0, "update")
        lines.append(
            f"{ratio:<6.0%}{cost.num_groups:>8}{cost.num_tokens:>9}{share:>8.1%}{scoring:>9.3f}{update:>9.3f}"
            f"{of_full:>9.1%}{of_full / share:>9.2f}"
        )
    return lines
