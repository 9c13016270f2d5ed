"""Collapse metrics: what it takes to score every thought after every prompt, in tokens and seconds.

    python benchmarks/collapse.py --size qwen2.5-0.5B        # random weights on a GPU
    python benchmarks/collapse.py --size 0.5M --device cpu

As at a step that measures: 8 first prompts and 64 prompts of any turn (8 groups, conversations that begin alike), 64
thoughts after each. Thoughts are as long as replies of a real run, 200 tokens at most: longer ones have no end tag.
Lines say how many tokens the pairs have, how many a pass for each prompt would read, and how many are read; the first
round, which compiles kernels, and the best of the others.
"""

from __future__ import annotations

import ragen  # isort: skip  # noqa: F401  (before torch: it makes OpenMP's waiting threads sleep)

import argparse
import time
from random import Random
from typing import Any

import torch
from parts.replies import recorded_lengths
from rollout import SIZES, build_model, machine

from ragen.learners.cross_scoring import cross_logprobs
from ragen.modeling.load import load_tokenizer
from ragen.models.resolve import resolve_model

FIRST_PROMPT, LATER_PROMPT, MAX_THOUGHT, VOCAB = 350, 150, 200, 100


def draw(rng: Random, count: int) -> list[int]:
    return [rng.randrange(10, VOCAB) for _ in range(count)]


def drawn_inputs(num_groups: int, num_samples: int) -> tuple[list[list[int]], list[list[int]], list[list[int]]]:
    """First prompts, prompts of any of five turns, and thoughts."""
    rng = Random(0)
    first = [draw(rng, FIRST_PROMPT) for _ in range(num_groups)]
    later = [rng.choice(first) + draw(rng, LATER_PROMPT * rng.randrange(5)) for _ in range(num_samples)]
    lengths = [length for length in recorded_lengths() if length <= MAX_THOUGHT]
    return first, later, [draw(rng, rng.choice(lengths)) for _ in range(num_samples)]


class Reads:
    """Counts the tokens that a model reads."""

    def __init__(self, model: Any) -> None:
        self.num_tokens = self.num_passes = 0
        model.get_input_embeddings().register_forward_hook(self.note)

    def note(self, module: Any, inputs: tuple[Any, ...], output: Any) -> None:
        self.num_tokens += inputs[0].numel()
        self.num_passes += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="0.5M")
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    tokenizer = load_tokenizer(resolve_model("tiny", env_types=["sokoban"]))
    model = build_model(SIZES[args.size], tokenizer, args.device)
    first, later, thoughts = drawn_inputs(args.groups, args.samples)
    reads, total = Reads(model), 0.0
    print(f"{machine(args.device)}; torch {torch.__version__}; {args.size}, {len(thoughts)} thoughts", flush=True)
    for name, prompts in (("first turns", first), ("any turns", later)):
        reads.num_tokens = reads.num_passes = 0
        seconds = []
        for _ in range(args.repeats + 1):
            started = time.perf_counter()
            cross_logprobs(model, prompts, thoughts, micro_batch_size=128)
            seconds.append(time.perf_counter() - started)
        columns, rows = (list({tuple(ids) for ids in found}) for found in (prompts, thoughts))
        in_pairs = sum(len(x) + len(z) for x in columns for z in rows)
        one_each = sum(len(x) + sum(len(z) for z in rows) for x in columns)
        rounds = args.repeats + 1
        print(
            f"{name:<12}{len(columns)} prompts: {in_pairs:,} tokens in pairs, {one_each:,} prompt by prompt, "
            f"{reads.num_tokens // rounds:,} read in {reads.num_passes // rounds} passes; "
            f"{min(seconds[1:]):.2f} s (first {seconds[0]:.2f})",
            flush=True,
        )
        total += min(seconds[1:])
    print(f"both: {total:.2f} s")


if __name__ == "__main__":
    main()
