"""A trainer to measure: real or random weights, played or synthetic episodes."""

from __future__ import annotations

import argparse
import copy
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from parts.replies import answer_with_moves, end_replies, reply_lengths
from rollout import SIZES, Size, build_model
from transformers import AutoModelForTokenClassification

from ragen.config.schema import Config
from ragen.engine.base import ModelSource
from ragen.learners.actor import Actor
from ragen.learners.critic import Critic
from ragen.learners.reference import Reference
from ragen.llm_agent.build import agent_with
from ragen.modeling.load import load_tokenizer, prepare_for_training
from ragen.models.resolve import resolve_model
from ragen.tracking import names
from ragen.tracking.rundir import RunDir
from ragen.tracking.tracker import Trackers
from ragen.trainer.agent_trainer import AgentTrainer
from ragen.trainer.build import build_workers, prepare
from ragen.trainer.starting.memory import GIB, cache_rows
from ragen.trainer.starting.start import plan_start
from ragen.types import Episode, Status, Turn
from ragen.workers.local import LocalWorkers

NUM_TURNS, PROMPT_TOKENS, REPLY_TOKENS = 5, 200, 100
"""Synthetic episodes: tokens of a turn."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """Random weights of a size, and the batch they are trained on."""

    size: Size
    num_groups: int
    group_size: int
    micro_batch_size: int


SHAPES = {
    "0.5M": Shape(size=SIZES["0.5M"], num_groups=4, group_size=2, micro_batch_size=4),
    "0.5B": Shape(size=SIZES["qwen2.5-0.5B"], num_groups=8, group_size=16, micro_batch_size=32),
    "3B": Shape(size=SIZES["qwen2.5-3B"], num_groups=8, group_size=16, micro_batch_size=4),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """One step."""

    seconds: dict[str, float]
    """Stage -> time; `step` is all of it."""
    cpu_seconds: float
    """Of all threads of the process: hardly changed by other work on the machine."""
    num_tokens: int
    num_sampled: int
    """Of them in the batch that was trained on."""
    num_played: int = 0
    """Tokens that the rollout sampled; others than those of the batch where that is synthetic."""
    peak_gib: float


class BenchTrainer(AgentTrainer):
    """Keeps its last rollout, and replaces it by synthetic episodes where there are some."""

    synthetic: list[Episode] = []
    is_playing = True
    episodes: list[Episode] = []
    num_played = 0
    """Tokens sampled by the last rollout."""

    def rollout(self, step: int) -> list[Episode]:
        played = super().rollout(step) if self.is_playing else []
        self.num_played = sum(len(turn.response_ids) for episode in played for turn in episode.turns)
        self.episodes = self.synthetic or played
        return self.episodes

    def timed_step(self, step: int) -> Measured:
        device = self.workers.actor.device.type
        reset_peak(device)
        cpu_started = time.process_time()
        metrics = self.step(step).metrics
        return Measured(
            seconds=names.below(names.TIMING, metrics),
            cpu_seconds=time.process_time() - cpu_started,
            num_tokens=round(metrics[names.join(names.PERFORMANCE, "total_num_tokens")]),
            num_sampled=round(metrics["response_length/mean"] * metrics["train/batch_size"]),
            num_played=self.num_played,
            peak_gib=peak_gib(device),
        )


@contextmanager
def open_trainer(config: Config, args: argparse.Namespace) -> Iterator[BenchTrainer]:
    """A trainer whose run directory goes with it."""
    with tempfile.TemporaryDirectory() as folder:
        config = replace(config, trainer=replace(config.trainer, default_local_dir=folder))
        if args.shape:
            workers = random_workers(config, SHAPES[args.shape].size, args.device)
            if args.replies == "real":
                end_replies(workers.agent.engine, reply_lengths(args.lengths_from))
                answer_with_moves(workers.agent)
        else:
            workers = build_workers(config, plan_start(config), device=args.device)
        total_steps = config.trainer.total_training_steps
        trackers = Trackers(config, RunDir(Path(folder)), total_steps=total_steps, resumed_step=None)
        trainer = BenchTrainer(config, workers, trackers=trackers, start_step=0, origin={})
        trainer.is_playing = not args.update_only
        if args.shape and (args.update_only or args.replies == "equal"):
            lengths = reply_lengths(args.lengths_from) if args.replies == "real" else [REPLY_TOKENS]
            trainer.synthetic = synthetic_episodes(config, workers.actor.model.config.vocab_size, lengths)
        with trackers:
            yield trainer
        workers.close()
        for learner in workers.learners.values():
            # bfloat16 weights hold their optimizer by a hook; the collector does not see that it holds them, too.
            learner.optimizer.weights.clear()


def random_workers(config: Config, size: Size, device: str) -> LocalWorkers:
    """What build_workers makes, from random weights instead of a folder."""
    parts, total = config.actor_rollout_ref, config.trainer.total_training_steps
    tokenizer = load_tokenizer(resolve_model("tiny", env_types=["sokoban"]))
    model = prepare(config, build_model(size, tokenizer, device))
    num_rows = cache_rows(config, model.config, device)
    agent = agent_with(config, ModelSource(path="", tokenizer=tokenizer, policy=model, max_num_seqs=num_rows))
    reference = Reference(build_model(size, tokenizer, device).requires_grad_(False))
    actor = Actor(model, parts.actor, temperature=parts.rollout.temperature, total_steps=total, reference=reference)
    critic = None
    if config.uses_critic:
        value_config = copy.deepcopy(model.config)
        value_config.num_labels = 1
        with torch.device(device):
            value_model: Any = AutoModelForTokenClassification.from_config(value_config, dtype=model.dtype)
        prepare_for_training(value_model)
        critic = Critic(prepare(config, value_model.eval(), is_critic=True), config.critic, total_steps=total)
    return LocalWorkers(config, agent, actor=actor, critic=critic, reference=reference, tokenizer=tokenizer)


def synthetic_episodes(config: Config, vocab_size: int, lengths: Sequence[int]) -> list[Episode]:
    """Random tokens, prompts of different lengths, drawn reply `lengths`, and rewards that vary within every group."""
    rng = random.Random(0)

    def tokens(count: int) -> list[int]:
        return [rng.randrange(vocab_size) for _ in range(count)]

    def turn() -> Turn:
        num_prompt, num_reply = rng.randint(PROMPT_TOKENS // 2, PROMPT_TOKENS * 3 // 2), rng.choice(lengths)
        made = Turn(
            user="",
            prompt_ids=tokens(num_prompt),
            response_ids=tokens(num_reply),
            logprobs=[-12.0] * num_reply,
            entropies=[12.0] * num_reply,
            text="",
            stop_reason="length",
        )
        made.reward = rng.random()
        return made

    envs = config.es_manager.train
    return [
        Episode(
            tag="synthetic",
            env_type="synthetic",
            group_id=group_id,
            member=member,
            seed=group_id,
            turns=[turn() for _ in range(NUM_TURNS)],
            status=Status.OUT_OF_TURNS,
        )
        for group_id in range(envs.env_groups)
        for member in range(envs.group_size)
    ]


def reset_peak(device: str) -> None:
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    else:
        Path("/proc/self/clear_refs").write_text("5")  # the highest resident size is counted anew


def peak_gib(device: str) -> float:
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / GIB
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 2**20
