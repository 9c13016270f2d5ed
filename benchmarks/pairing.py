"""Sampling that pairs: how many tokens change when the model changes a little, with the same keys of the noise.

    python benchmarks/pairing.py --lr 1e-4                           # the embedded model
    python benchmarks/pairing.py --model DIR --config real_frozen_lake --device cuda

The model plays first turns. At each token it wrote, tokens are drawn under the same keys from its own distribution and
from two others: after a step of `--lr` along the signs of the gradient of these replies (Adam's first step), and
computed in bfloat16. Counted are the draws that differ, for three ways of drawing:

    inversion   the cumulative distribution in vocabulary order, inverted at one uniform number
    gumbel      one exponential time for each token of the vocabulary (Gumbel-max)
    ours        ragen.engine.sampling: chunks of the vocabulary first, then the tokens of one

No way can differ in fewer draws than the total variation between the two distributions, which stands beside.
"""

from __future__ import annotations

import ragen  # isort: skip  # noqa: F401  (before torch: it makes OpenMP's waiting threads sleep)

import argparse
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from ragen.api.agent import Agent
from ragen.config import load_config
from ragen.engine import sampling
from ragen.models.resolve import resolve_model

Draw = Callable[[Tensor, np.ndarray], Tensor]


def inversion(probs: Tensor, keys: np.ndarray) -> Tensor:
    noise = (keys.view(np.uint64) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    cdf = probs.double().cumsum(dim=0)
    return torch.searchsorted(cdf, torch.from_numpy(noise).to(cdf.device) * cdf[-1], right=True)


def gumbel(probs: Tensor, keys: np.ndarray) -> Tensor:
    # The others are too unlikely to count, and too many for the memory.
    tokens = probs.argsort(descending=True)[:8192]
    return tokens[(probs[tokens] / sampling.arrival_times(keys, tokens)).argmax(dim=1)]


def ours(probs: Tensor, keys: np.ndarray) -> Tensor:
    return sampling._race(probs.expand(len(keys), -1), keys)


WAYS: dict[str, Draw] = {"inversion": inversion, "gumbel": gumbel, "ours": ours}


def replies(model: str, config: str, device: str, levels: int) -> list[tuple[list[int], list[int]]]:
    """Prompts and replies of first turns, as token ids."""
    with Agent(model, load_config(config), device=device) as agent:
        episodes = agent.play(num_levels=levels)
    return [(list(turn.prompt_ids), list(turn.response_ids)) for turn in (episode.turns[0] for episode in episodes)]


def loss_and_probs(model: torch.nn.Module, texts: list[tuple[list[int], list[int]]]) -> tuple[Tensor, Tensor]:
    """The mean surprise of the replies, and the distributions [tokens, vocab] they were drawn from."""
    device = next(model.parameters()).device
    losses, probs = [], []
    for prompt, reply in texts:
        logits = model(torch.tensor([prompt + reply], device=device)).logits[0, len(prompt) - 1 : -1].float()
        losses.append(torch.nn.functional.cross_entropy(logits, torch.tensor(reply, device=device)))
        probs.append(torch.softmax(logits.detach(), dim=-1))
    return torch.stack(losses).mean(), torch.cat(probs)


def changed(draw: Draw, ours: Tensor, theirs: Tensor, num_keys: int) -> float:
    """The share of draws that differ."""
    count = 0
    for position, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        keys = sampling.noise_keys([position] * num_keys, range(num_keys))
        count += int((draw(mine, keys) != draw(other, keys)).sum())
    return count / (len(ours) * num_keys)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny/frozen_lake")
    parser.add_argument("--config", default="quickstart")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--levels", type=int, default=16, help="replies")
    parser.add_argument("--keys", type=int, default=100, help="draws at each token")
    parser.add_argument("--lr", type=float, default=2e-6, help="how far each weight moves")
    args = parser.parse_args()

    folder = str(resolve_model(args.model))
    texts = replies(args.model, args.config, args.device, args.levels)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(args.device)
    loss, first = loss_and_probs(model, texts)
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter -= args.lr * parameter.grad.sign()
        _, stepped = loss_and_probs(model, texts)
        half = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).to(args.device)
        _, rounded = loss_and_probs(half, texts)
    print(f"{len(first)} tokens of {len(texts)} replies, {first.shape[1]} words, {args.keys} keys each", flush=True)
    print(f"| way | after a step of {args.lr:g} | in bfloat16 |\n|---|---|---|")
    distances = [(0.5 * (first - other).abs().sum(dim=1)).mean().item() for other in (stepped, rounded)]
    print("| total variation | " + " | ".join(f"{distance:.5f}" for distance in distances) + " |")
    for name, draw in WAYS.items():
        shares = [changed(draw, first, other, args.keys) for other in (stepped, rounded)]
        print(f"| {name} | " + " | ".join(f"{share:.5f}" for share in shares) + " |", flush=True)


if __name__ == "__main__":
    main()
