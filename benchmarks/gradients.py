"""Gradient analysis: how many passes, tokens and operators it takes, and how long.

    python benchmarks/gradients.py --size qwen2.5-0.5B --groups 128       # random weights on a GPU
    python benchmarks/gradients.py --size 0.5M --device cpu --groups 24

Groups of 16 episodes that share their first prompt, in the six buckets and at the settings of `real_sokoban` (16,384
tokens a pass, parts task, entropy and KL); about 160 sampled tokens an episode. The first round, which compiles
kernels, is apart. Operators are counted in a round more by PyTorch's profiler, without those that only look at a
tensor or call another one; they grow with the number of layers and not with their size. Its account of 128 groups
takes minutes: on a GPU they are counted with --operators only. `--save FILE` writes what was found, for a comparison
of two versions.
"""

from __future__ import annotations

import ragen  # isort: skip  # noqa: F401  (before torch: it makes OpenMP's waiting threads sleep)

import argparse
import re
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import torch
from rollout import SIZES, build_model, machine
from torch.profiler import ProfilerActivity, profile

from ragen.algorithms.rollout_filter import quantile_buckets
from ragen.config import load_config
from ragen.diagnostics.gradient_reporter import folds
from ragen.learners.actor import Actor, score_logprobs
from ragen.learners.batch import Batch, make_batch
from ragen.learners.gradients import component_gradients
from ragen.modeling.load import load_tokenizer
from ragen.models.resolve import resolve_model
from ragen.types import Sample

LOOKS = re.compile(
    r"aten::(_?(to_copy|unsafe_view|reshape_alias|local_scalar_dense)|alias|as_strided|clone|contiguous|detach_?|empty.*"
    r"|expand.*|flatten|item|lift_fresh|linear|matmul|narrow|new_.*|ones.*|pad|permute|reshape|resize_|resolve_.*"
    r"|result_type|select|slice|split.*|squeeze|stack|t|to|transpose|unbind|unflatten|unsqueeze|view.*|zeros?_?|zeros_like)"
)
"""Operators that only look at a tensor, or call another one."""
PROMPT, OBSERVATION, REPLY, NUM_TURNS, VOCAB = 120, 30, (20, 90), 3, 100


def drawn_batch(num_groups: int, group_size: int) -> Batch:
    """Episodes of random tokens, with random advantages."""
    rng, samples = Random(0), []
    for group in range(num_groups):
        prompt = [rng.randrange(10, VOCAB) for _ in range(PROMPT)]
        for member in range(group_size):
            ids, mask, spans = list(prompt), [0] * PROMPT, []
            for turn in range(NUM_TURNS):
                for size, is_sampled in ((OBSERVATION if turn else 0, 0), (rng.randint(*REPLY), 1)):
                    ids += [rng.randrange(10, VOCAB) for _ in range(size)]
                    mask += [is_sampled] * size
                spans.append((len(ids) - size, len(ids)))
            scores = [rng.random() for _ in spans]
            samples.append(
                Sample(
                    group_id=group,
                    member=member,
                    input_ids=ids,
                    loss_mask=mask,
                    logprobs=[-1.0 * sampled for sampled in mask],
                    turn_spans=spans,
                    turn_scores=scores,
                )
            )
    batch = make_batch(samples, {group: rng.random() for group in range(num_groups)})
    noise = torch.randn(2, *batch.mask.shape, generator=torch.Generator().manual_seed(0))
    batch.advantages = noise[0] * batch.mask
    batch.ref_logprobs = noise[1]  # the policy's own are added
    return batch


class Counts:
    """Tokens and passes, forward and backward."""

    def __init__(self, model: Any) -> None:
        self.found: Counter[str] = Counter()
        model.get_input_embeddings().register_forward_hook(self.forward)
        model.base_model.norm.register_forward_hook(self.last)

    def forward(self, module: Any, inputs: tuple[Any, ...], output: Any) -> None:
        self.found += Counter({"forward tokens": inputs[0].numel(), "forward passes": 1})

    def last(self, module: Any, inputs: tuple[Any, ...], output: Any) -> None:
        if inputs[0].requires_grad:
            count = inputs[0].shape[-2]
            inputs[0].register_hook(lambda _: self.found.update({"backward tokens": count, "backward passes": 1}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="0.5M")
    parser.add_argument("--groups", type=int, default=24)
    parser.add_argument("--group-size", type=int, default=16)
    parser.add_argument("--layers", type=int, help="instead of the size's own")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--operators", type=int, default=0, help="list so many of the most frequent")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    tokenizer = load_tokenizer(resolve_model("tiny", env_types=["sokoban"]))
    size = SIZES[args.size] if args.layers is None else replace(SIZES[args.size], layers=args.layers)
    model = build_model(size, tokenizer, args.device)
    changes = ["model_path=tiny", "actor_rollout_ref.actor.entropy_coeff=0.001"]
    config = load_config("real_sokoban", changes).actor_rollout_ref.actor
    actor = Actor(model, config, temperature=1.0, total_steps=1)
    batch = drawn_batch(args.groups, args.group_size)
    batch.old_logprobs, _ = score_logprobs(model, batch, temperature=1.0, max_samples=64)
    batch.ref_logprobs = batch.old_logprobs + 0.1 * batch.ref_logprobs  # type: ignore[operator]
    stds = dict(zip(batch.groups.tolist(), batch.reward_std.tolist(), strict=True))
    buckets = {name: folds(batch, groups) for name, groups in quantile_buckets(stds, 6).items()}
    print(
        f"{machine(args.device)}; torch {torch.__version__}; {args.size}, {len(batch)} episodes, {batch.num_tokens:,} "
        f"tokens, {int(batch.mask.sum()):,} of them sampled, {sum(map(len, buckets.values()))} folds",
        flush=True,
    )
    counts = Counts(model)
    seconds = []
    for number in range(args.repeats):
        started = time.perf_counter()
        found = component_gradients(actor, batch, buckets)
        seconds.append(time.perf_counter() - started)
        for name, count in counts.found.items() if number == 0 else ():
            print(f"{name:<28}{count:>12,}")
        print(f"round {number + 1}: {seconds[-1]:.2f} s", flush=True)
    print(f"first {seconds[0]:.2f} s, best of the others {min(seconds[1:] or seconds):.2f} s", flush=True)
    if args.save:
        torch.save(
            {c: {b: (g.norm, g.loss, g.sketches) for b, g in rows.items()} for c, rows in found.items()}, args.save
        )
    if args.device == "cpu" or args.operators:
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            component_gradients(actor, batch, buckets)
        calls = {event.key: event.count for event in profiler.key_averages()}
        names = [name for name in calls if name.startswith("aten::") and not LOOKS.fullmatch(name)]
        print(f"{'operators':<28}{sum(calls[name] for name in names):>12,}")
        for name in sorted(names, key=lambda name: -calls[name])[: args.operators]:
            print(f"{name:<40}{calls[name]:>10,}")


if __name__ == "__main__":
    main()
