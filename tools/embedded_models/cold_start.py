"""Two cold starts for Sokoban: `python -m tools.embedded_models.cold_start OUT` writes OUT/chance and OUT/skewed.

Both speak the form and look at no board: a thought that belongs to another one, then one to three random actions.
`chance` draws the four directions alike, from the embedded model on; `skewed` prefers Right, from `chance` on, and so
solves less than chance, as an untrained model of 0.5B does (docs/results/real.md). What the embedded model knew of
boards is not taken out of its weights; it only no longer says it. The levels start at seed 3,000,000, far from those
of training.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ragen.config import load_config
from ragen.config.schema import Config
from ragen.models.resolve import TINY_ROOT
from ragen.seeding import Rng
from ragen.types import Sample

FIRST_SEED = 3_000_000
NUM_LEVELS = 600
"""Levels of a round."""
NUM_ACTIONS = (1, 1, 1, 1, 1, 1, 2, 2, 2, 3)
"""How many actions a reply has, each number alike: 1.5 on average."""
CHANCE = {"Up": 1, "Down": 1, "Left": 1, "Right": 1}
SKEWED = {"Right": 80, "Down": 10, "Left": 5, "Up": 5}
BATCH_TOKENS = 8192
LR = 1e-3
"""At first; it falls to zero along a line."""


def cold_config(num_levels: int) -> Config:
    """The prompts of the recipe for a real model, one episode for each level."""
    return load_config(
        "real_sokoban",
        [
            "model_path=tiny",
            "actor_rollout_ref.rollout.response_length=64",
            "actor_rollout_ref.rollout.max_model_len=1024",
            "actor_rollout_ref.rollout.rollout_filter_include_zero=True",
            f"es_manager.train.env_groups={num_levels}",
            "es_manager.train.group_size=1",
            "es_manager.train.levels=fresh",
            "ppo_mini_batch_size=1",
        ],
    )


def blind_player(config: Config, tokenizer: Any, shares: Mapping[str, int]) -> Callable[[int], Sequence[Sample]]:
    """A function that gives the sequences of a round; its actions are drawn by their shares."""
    from ragen.engine.base import Request
    from ragen.llm_agent.build import build_chat
    from ragen.llm_agent.es_manager import EsManager, levels_from
    from ragen.llm_agent.policies import play_replies
    from ragen.sft.data import training_samples

    names = [name for name, share in shares.items() for _ in range(share)]
    chat, environments = build_chat(config, tokenizer), EsManager(config.es_manager.train, config.custom_envs)

    def play(number: int) -> Sequence[Sample]:
        first_seed = FIRST_SEED + number * 10_000
        environments.reset(levels_from(first_seed + 5_000, environments.num_groups))
        thoughts = [hint for seat in environments.seats if (hint := seat.hint())]

        def reply(request: Request) -> str:
            rng = Rng(number, "cold", request.seed)
            count = min(rng.choice(NUM_ACTIONS), environments.seats[request.session].num_actions_left)
            actions = f" {config.agent_proxy.action_sep} ".join(rng.choice(names) for _ in range(count))
            return f"{rng.choice(thoughts)}</think><answer>{actions}</answer>"

        episodes = play_replies(config, environments, reply, base_seed=first_seed, seed=number, chat=chat)
        return training_samples(config, episodes)

    return play


def teach(base: Path, out: Path, *, shares: Mapping[str, int], rounds: int, num_levels: int = NUM_LEVELS) -> None:
    """Train the model of `base` on the replies of so many rounds; prints the loss of each."""
    import torch
    from transformers import AutoModelForCausalLM

    from ragen.modeling.load import load_tokenizer
    from tools.embedded_models.train import batches, reply_loss

    tokenizer = load_tokenizer(base)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).train()
    play = blind_player(cold_config(num_levels), tokenizer, shares)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0)
    for number in range(rounds):
        found = list(batches(play(number), max_tokens=BATCH_TOKENS, rng=Rng(number, "cold-order")))
        total = 0.0
        for step, (ids, labels) in enumerate(found):
            optimizer.param_groups[0]["lr"] = LR * (1 - (number + step / len(found)) / rounds)
            loss = reply_loss(model, ids, labels)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            total += loss.item()
        print(f"{out.name}: round {number + 1}/{rounds}  loss {total / len(found):.4f}", flush=True)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.embedded_models.cold_start", description="Make two cold starts for Sokoban."
    )
    parser.add_argument("out", type=Path, help="folder that gets chance/ and skewed/")
    out = parser.parse_args(argv).out
    teach(TINY_ROOT / "sokoban", out / "chance", shares=CHANCE, rounds=10)
    teach(out / "chance", out / "skewed", shares=SKEWED, rounds=2)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
