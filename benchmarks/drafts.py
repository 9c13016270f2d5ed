"""Drafts: the same rollouts without and with them, in one process.

    python benchmarks/drafts.py --model DIR --config real_sokoban --response-length 400      # on a GPU
    python benchmarks/drafts.py --model tiny/sokoban --config quickstart_sokoban --groups 2 --size 4 --repeats 1

Every rollout plays --groups levels, --size episodes of each, with the sampling of training; a seed is played without
drafts and with them. One rollout each way goes before and is not counted. `differ` are episodes with a token that is
another one: a check of drafts rounds as a batch of another size does, and where two tokens arrive together, rounding
decides. The distance of log-probs is that of the replies before the first such token.

Off a GPU the plain engine plays, which knows no drafts. There, and everywhere, the last line plays the recorded replies
of the runs without drafts again, all of a turn side by side, and counts what the index would have guessed.
"""

from __future__ import annotations

import ragen  # isort: skip  # noqa: F401  (before torch: it makes OpenMP's waiting threads sleep)

import argparse
import time
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
import torch

from ragen.config import load_config
from ragen.engine.drafts import SuffixIndex
from ragen.engine.native.build import native_engine
from ragen.llm_agent.agent_proxy import RolloutPlan
from ragen.llm_agent.build import build_chat, build_proxy, sampling_params
from ragen.llm_agent.es_manager import EsManager, levels_from
from ragen.modeling.load import load_model, load_tokenizer
from ragen.models.resolve import resolve_model
from ragen.types import Episode, Turn

BASE_SEED = 10_000


class Arm:
    """An engine that plays with drafts or without."""

    def __init__(self, config: Any, model: Any, tokenizer: Any, *, drafts: bool) -> None:
        rollout = config.actor_rollout_ref.rollout
        self.config, self.chat = config, build_chat(config, tokenizer)
        self.engine = native_engine(
            model,
            tokenizer,
            drafts=drafts,
            max_num_seqs=rollout.max_num_seqs,
            max_model_len=rollout.max_model_len,
            max_num_batched_tokens=rollout.max_num_batched_tokens,
        )

    def play(self, seed: int) -> tuple[float, list[Episode], int]:
        """Seconds of a rollout, its episodes, and launches that decoded; 0 where the engine does not count them."""
        environments = EsManager(self.config.es_manager.train, self.config.custom_envs)
        proxy = build_proxy(self.config, self.engine, self.chat)
        plan = RolloutPlan(
            levels=levels_from(BASE_SEED + seed * environments.num_groups, environments.num_groups),
            noise_seed=seed,
            params=sampling_params(self.config, self.chat, is_validation=False),
        )
        started = time.perf_counter()
        episodes = proxy.rollout(environments, plan)
        self.engine.end_rollout()
        seconds = time.perf_counter() - started
        environments.close()
        counts: Any = getattr(self.engine, "last_counts", None)
        return seconds, episodes, counts.launches if counts else 0


def num_tokens(episodes: Sequence[Episode]) -> int:
    return sum(len(turn.response_ids) for episode in episodes for turn in episode.turns)


def compare(ours: Episode, theirs: Episode) -> tuple[bool, list[float]]:
    """Whether all tokens are the same, and the distances of log-probs as far as they are."""
    distances: list[float] = []
    for mine, other in zip(ours.turns, theirs.turns, strict=False):
        pairs = zip(mine.response_ids, other.response_ids, mine.logprobs, other.logprobs, strict=False)
        for token, another, logprob, other_logprob in pairs:
            if token != another:
                return False, distances
            distances.append(abs(logprob - other_logprob))
        if len(mine.response_ids) != len(other.response_ids):
            return False, distances
    return len(ours.turns) == len(theirs.turns), distances


def replayed(episodes: Sequence[Episode], *, most: int = 7, few: int = 32) -> tuple[int, int, float]:
    """Launches for the recorded replies without and with drafts, and tokens of a reply per check, on average."""
    index, plain, launches, gained, checked = SuffixIndex(len(episodes)), 0, 0, 0, 0
    for turns in zip_longest(*(episode.turns for episode in episodes)):
        replies = {slot: list(turn.response_ids) for slot, turn in enumerate(turns) if turn is not None}
        replies = {slot: reply for slot, reply in replies.items() if reply}
        if not replies:
            continue
        for slot, reply in replies.items():
            begin(index, slot, turns[slot], room=len(reply))
        plain += max(map(len, replies.values()))
        seen = dict.fromkeys(replies, 0)
        while is_open := [slot for slot in replies if seen[slot] < len(replies[slot])]:
            is_few = len(is_open) <= few
            drafts = index.propose(np.array(is_open), most if is_few else 1)
            launches += 1
            for slot, draft in zip(is_open, drafts.tolist(), strict=True):
                rest = replies[slot][seen[slot] :]
                right = next((i for i, (d, t) in enumerate(zip(draft, rest, strict=False)) if d != t), len(draft))
                taken = rest[: right + 1] if is_few else rest[:1]
                index.extend(np.full(len(taken), slot), np.arange(len(taken)), np.array(taken))
                seen[slot] += len(taken)
                gained, checked = (gained + len(taken), checked + 1) if is_few else (gained, checked)
    return plain, launches, gained / max(checked, 1)


def begin(index: SuffixIndex, slot: int, turn: Turn, *, room: int) -> None:
    index.begin(slot, list(turn.prompt_ids), num_known=0, room=room)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a model folder, or a name of `ragen models`")
    parser.add_argument("--config", default="real_sokoban")
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--size", type=int, default=16, help="episodes of a group")
    parser.add_argument("--response-length", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=3, help="seeds that are counted")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("changes", nargs="*", help="further keys of the configuration")
    args = parser.parse_args()

    tag = load_config(args.config).es_manager.train.env_configs.tags[0]
    config = load_config(
        args.config,
        [
            f"es_manager.train.env_groups={args.groups}",
            f"es_manager.train.group_size={args.size}",
            f"es_manager.train.env_configs.tags=[{tag}]",
            f"es_manager.train.env_configs.n_groups=[{args.groups}]",
            "ppo_mini_batch_size=1",
            f"actor_rollout_ref.rollout.response_length={args.response_length}",
            "actor_rollout_ref.rollout.max_model_len=3600",
            *args.changes,
        ],
    )
    folder = resolve_model(args.model)
    model, tokenizer = load_model(folder, device=args.device), load_tokenizer(folder)
    arms = {name: Arm(config, model, tokenizer, drafts=name == "on") for name in ("off", "on")}
    print(f"{type(arms['on'].engine).__name__}, {args.groups}x{args.size} episodes of {tag}", flush=True)
    for arm in arms.values():
        arm.play(0)  # compiles and captures
    print("| seed | drafts | s | tokens | tokens/s | launches | checks | tokens per check | acceptance | saved |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    num_different, distances, recorded = 0, [], []
    totals = dict.fromkeys(arms, 0.0)
    for seed in range(1, args.repeats + 1):
        played = {}
        for name, arm in arms.items():
            seconds, played[name], launches = arm.play(seed)
            totals[name] += seconds
            tokens, found = num_tokens(played[name]), arm.engine.metrics()
            numbers = [
                f"{found[f'rollout/draft_{key}']:.{digits}f}" if found else ""
                for key, digits in [("launches", 0), ("tokens_per_launch", 2), ("acceptance", 2), ("launches_saved", 0)]
            ]
            print(
                f"| {seed} | {name} | {seconds:.2f} | {tokens} | {tokens / seconds:,.0f} | {launches} | "
                + " | ".join(numbers)
                + " |",
                flush=True,
            )
        for ours, theirs in zip(played["on"], played["off"], strict=True):
            is_same, found = compare(ours, theirs)
            num_different += not is_same
            distances += found
        recorded = played["off"]
    if hasattr(arms["on"].engine, "last_counts"):
        print(f"\n{totals['off'] / totals['on']:.2f}x as fast with drafts, over {args.repeats} rollouts")
    else:
        print("\nThis engine knows no drafts: both ways are the same. Run on a GPU to compare them.")
    print(
        f"{num_different} of {args.repeats * args.groups * args.size} episodes differ; log-probs of the same tokens by "
        f"{np.mean(distances):.2g} on average, {np.max(distances):.2g} at most"
    )
    plain, launches, rate = replayed(recorded)
    print(
        f"replayed, turns side by side: {plain} launches without and {launches} with drafts, {rate:.2f} tokens a check"
    )


if __name__ == "__main__":
    main()
