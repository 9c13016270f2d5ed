"""A whole rollout of real shape: 8 x 16 Sokoban episodes, five turns, replies that end at different times."""

from __future__ import annotations

import statistics
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from parts.replies import answer_with_moves, end_replies
from rollout import BASE_SEED, SIZES, build_model

from ragen.config import load_config
from ragen.config.schema import Config
from ragen.engine.native.build import native_engine
from ragen.engine.sessions import SessionEngine
from ragen.llm_agent.agent_proxy import AgentProxy, RolloutPlan
from ragen.llm_agent.build import build_chat, build_proxy, sampling_params
from ragen.llm_agent.es_manager import EsManager, levels_from
from ragen.modeling.load import load_model, load_tokenizer
from ragen.models.resolve import resolve_model

RESPONSE_LENGTH = 400


@dataclass(kw_only=True, slots=True)
class RealRollout:
    """One rollout, measured."""

    seconds: float = 0.0
    num_replies: int = 0
    num_sampled: int = 0
    num_success: int = 0
    batches: list[int] = field(default_factory=list)
    """Sequences of each launch that decoded or checked drafts."""
    num_prefills: int = 0
    num_prefilled: int = 0
    """Prompt tokens that went through the model."""

    def cells(self) -> list[str]:
        """Tokens per second, milliseconds a launch, and in words what the table has no column for."""
        launches = len(self.batches)
        return [
            f"{self.num_sampled / self.seconds:,.0f}",
            f"{1e3 * self.seconds / max(1, launches):.2f}",
            "",
            f"{self.seconds:.2f} s for {self.num_sampled:,} tokens of {self.num_replies} replies",
            f"{launches} decode launches of {statistics.median(self.batches or [0]):.0f} (median)",
            f"{self.num_prefills} prefills of {self.num_prefilled:,} tokens",
        ]


@dataclass(frozen=True, kw_only=True, slots=True)
class RealPlayers:
    """What plays it, time after time."""

    config: Config
    proxy: AgentProxy
    engine: Any
    environments: EsManager

    def play(self, noise_seed: int = 0) -> RealRollout:
        measured = RealRollout()
        levels = levels_from(BASE_SEED, self.environments.num_groups)
        params = sampling_params(self.config, self.proxy.chat, is_validation=False)
        plan = RolloutPlan(levels=levels, noise_seed=noise_seed, params=params)
        prefilled = self.engine.num_prefilled
        with counted(self.engine, measured):
            started = time.perf_counter()
            episodes = self.proxy.rollout(self.environments, plan)
            measured.seconds = time.perf_counter() - started
        self.engine.end_rollout()
        turns = [turn for episode in episodes for turn in episode.turns]
        measured.num_replies = len(turns)
        measured.num_sampled = sum(len(turn.response_ids) for turn in turns)
        measured.num_success = sum(episode.is_success for episode in episodes)
        measured.num_prefilled = self.engine.num_prefilled - prefilled
        return measured

    def close(self) -> None:
        self.engine.close()
        self.environments.close()


@contextmanager
def counted(engine: SessionEngine, into: RealRollout) -> Iterator[None]:
    """Within: the launches of an engine are noted, at its runner where it has one, else at its own passes."""
    target = getattr(engine, "runner", engine)
    decoding, prefilling = (("_decode",), "_prefill") if target is engine else (("decode", "verify"), "prefill")
    names = [name for name in (*decoding, prefilling) if hasattr(target, name)]

    def counted_decode(decode: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        size = len(args[0]) if args else sum(session.reply is not None for session in engine.live)
        if size:
            into.batches.append(size)
        return decode(*args, **kwargs)

    def counted_prefill(prefill: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        into.num_prefills += 1
        return prefill(*args, **kwargs)

    for name in names:
        note = counted_prefill if name == prefilling else counted_decode
        setattr(target, name, partial(note, getattr(target, name)))
    try:
        yield
    finally:
        for name in names:
            delattr(target, name)  # the method of the class is back


def real_config(model_path: str, *, groups: int, group_size: int, turns: int) -> Config:
    return load_config(
        "_2_sokoban",
        [
            f"model_path={model_path}",
            f"es_manager.train.env_groups={groups}",
            f"es_manager.train.group_size={group_size}",
            "ppo_mini_batch_size=1",
            f"agent_proxy.max_turn={turns}",
            f"actor_rollout_ref.rollout.response_length={RESPONSE_LENGTH}",
            "actor_rollout_ref.rollout.temperature=1",
        ],
    )


def random_players(size: str, lengths: Sequence[int], args: Namespace) -> RealPlayers:
    """Random weights of a size, replies of drawn lengths, answers of drawn moves."""
    config = real_config("tiny", groups=args.groups, group_size=args.group_size, turns=args.turns)
    tokenizer = load_tokenizer(resolve_model("tiny", env_types=["sokoban"]))
    players = _players(config, build_model(SIZES[size], tokenizer, args.device), tokenizer)
    end_replies(players.engine, lengths)
    answer_with_moves(players.proxy)
    return players


def model_players(folder: Path, args: Namespace) -> RealPlayers:
    """A real model as it is: its own template, stop tokens and answers."""
    config = real_config(str(folder), groups=args.groups, group_size=args.group_size, turns=args.turns)
    return _players(config, load_model(folder, device=args.device), load_tokenizer(folder))


def _players(config: Config, model: Any, tokenizer: Any) -> RealPlayers:
    rollout = config.actor_rollout_ref.rollout
    engine = native_engine(
        model,
        tokenizer,
        drafts=rollout.drafts,
        max_num_seqs=rollout.max_num_seqs,
        max_model_len=rollout.max_model_len,
        max_num_batched_tokens=rollout.max_num_batched_tokens,
    )
    proxy = build_proxy(config, engine, build_chat(config, tokenizer))
    return RealPlayers(
        config=config,
        proxy=proxy,
        engine=engine,
        environments=EsManager(config.es_manager.train, config.custom_envs),
    )


def real_row(name: str, title: str, make: Callable[[], RealPlayers], repeats: int) -> list[str]:
    """A row of the table: the best of some rollouts, and what the first one and the loading took."""
    started = time.perf_counter()
    players = make()
    loading = time.perf_counter() - started
    first, *later = [players.play(noise_seed=number) for number in range(repeats + 1)]
    players.close()
    best = min(later, key=lambda one: one.seconds)
    return [name, title, *best.cells(), f"first rollout {first.seconds:.2f} s, after {loading:.1f} s of loading"]
