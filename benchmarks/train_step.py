"""Training steps: time per stage of GRPO and PPO, memory, the filter's saving, and TRL's GRPO step in the same run.

    python benchmarks/train_step.py --env sokoban --trl-python /tmp/trl/bin/python
    python benchmarks/train_step.py --shape 0.5B --device cuda

Without --shape the embedded model of an environment plays and learns through the parts of the real trainer, on levels
that change with the step. With --shape the weights are random, and two things differ: replies go on for 100 tokens,
and after the rollout, which is only timed, training goes on with synthetic episodes of about 1500 tokens in 5 turns, a
third of them sampled.

Both algorithms hold on to a reference: GRPO by a KL term in its loss, PPO by one in its rewards. Old log-probs are
recomputed unless --old-log-probs engine takes those of the rollout, as the quickstart does. Diagnostics, validation
and checkpoints are off. All groups are kept; what the filter saves is measured afterwards on one rollout. Times are
medians over the rounds after one that is not counted.

tokens/s: sampled tokens for gen, tokens of the batch, prompts included, for the rest.
MFU: model FLOPs over those of 790 TFLOP/s. A training token costs 6 FLOPs for each parameter of the layers, and a
sampled one 6 for each of the output layer too: nothing else goes through it. The embedding is a look-up; attention,
recomputation and the scoring passes are not counted.

TRL wants an environment of its own, in which trl_step.py runs:

    python -m venv /tmp/trl
    /tmp/trl/bin/pip install torch==2.13.0 transformers==5.17.0 trl==1.16.0 accelerate datasets hydra-core numpy rich

Both play the same levels with the same weights, prompts, reply limits, mini and micro batches, losses and threads, in
float32; they take turns, and a ratio is the median of the rounds' own ratios.
"""

from __future__ import annotations

import ragen  # isort: skip  # noqa: F401  (before torch: it makes OpenMP's waiting threads sleep)

import argparse
import copy
import gc
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from rollout import SIZES, Size, build_model, machine
from torch.nn.utils.rnn import pad_sequence
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForTokenClassification

from ragen.algorithms.entropy import CHUNK_SIZE, head_logprobs
from ragen.algorithms.rollout_filter import FilterSettings, RolloutFilter
from ragen.config import load_config
from ragen.config.load import to_dict
from ragen.config.schema import Config
from ragen.llm_agent.build import native_agent
from ragen.models.load import prepare_for_training
from ragen.sft.tiny import RECIPES, make_tokenizer
from ragen.tracking.tracker import Trackers
from ragen.trainer.agent_trainer import AgentTrainer
from ragen.trainer.build import build_workers, prepare
from ragen.trainer.memory import GIB, cache_rows
from ragen.trainer.scoring import score
from ragen.trainer.start import plan_start
from ragen.types import Episode, Metrics, Status, Turn, group_episodes
from ragen.workers.actor import Actor
from ragen.workers.batch import Batch
from ragen.workers.critic import Critic
from ragen.workers.local import LocalWorkers
from ragen.workers.model import logits_of
from ragen.workers.reference import Reference

CONFIGS = {"frozen_lake": "quickstart", "sokoban": "quickstart_sokoban"}
ALGORITHMS = {
    "grpo": [
        "algorithm.adv_estimator=grpo",
        "actor_rollout_ref.actor.use_kl_loss=True",
        "actor_rollout_ref.actor.kl_loss_coef=0.001",
    ],
    "ppo": ["algorithm.adv_estimator=gae", "algorithm.use_kl_in_reward=True", "algorithm.kl_ctrl.kl_coef=0.001"],
}
SCORING = ("old_log_prob", "ref", "values", "adv")
UPDATES = ("update_critic", "update_actor")
KEPT = (1.0, 0.75, 0.5, 0.25)
PEAK_FLOPS = 790e12
"""Of an H200 in bfloat16, what large matrix products reach."""

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


Step = Callable[[int], Measured]


# --- our step


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

    def measure(self, step: int) -> Measured:
        device = self.workers.actor.device.type
        reset_peak(device)
        cpu_started = time.process_time()
        metrics = self.step(step).metrics
        prefix = "timing_s/"
        return Measured(
            seconds={name.removeprefix(prefix): value for name, value in metrics.items() if name.startswith(prefix)},
            cpu_seconds=time.process_time() - cpu_started,
            num_tokens=round(metrics["perf/total_num_tokens"]),
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
        else:
            start = plan_start(config)
            assert start is not None
            workers = build_workers(config, start, device=args.device)
        trackers = Trackers(
            config.trainer.logger, config=to_dict(config), run_dir=Path(folder), project="bench", experiment="step"
        )
        trainer = BenchTrainer(config, workers, trackers=trackers, start_step=0, origin={})
        trainer.is_playing = not args.update_only
        if args.shape:
            trainer.synthetic = synthetic_episodes(config, workers.actor.model.config.vocab_size)
        with trackers:
            yield trainer
        workers.close()
        for learner in workers.learners.values():
            # bfloat16 weights hold their optimizer by a hook; the collector does not see that it holds them, too.
            learner.optimizer.weights.clear()


def random_workers(config: Config, size: Size, device: str) -> LocalWorkers:
    """What build_workers makes, from random weights instead of a folder."""
    parts, total = config.actor_rollout_ref, config.trainer.total_training_steps
    tokenizer = make_tokenizer(RECIPES["sokoban"])
    model = prepare(config, build_model(size, tokenizer, device))
    agent = native_agent(config, model, tokenizer, max_num_seqs=cache_rows(config, model.config, device))
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


def synthetic_episodes(config: Config, vocab_size: int) -> list[Episode]:
    """Random tokens, prompts of different lengths, and rewards that vary within every group."""
    rng = random.Random(0)

    def tokens(count: int) -> list[int]:
        return [rng.randrange(vocab_size) for _ in range(count)]

    def turn() -> Turn:
        made = Turn(
            user="",
            prompt_ids=tokens(rng.randint(PROMPT_TOKENS // 2, PROMPT_TOKENS * 3 // 2)),
            response_ids=tokens(REPLY_TOKENS),
            logprobs=[-12.0] * REPLY_TOKENS,
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


# --- TRL's step


@contextmanager
def open_trl(args: argparse.Namespace, overrides: list[str]) -> Iterator[Step]:
    """trl_step.py, waiting in the other environment."""
    root = Path(__file__).parent
    settings = {"config_name": CONFIGS[args.env], "overrides": overrides, "threads": args.threads}
    environment = os.environ | {"PYTHONPATH": str(root.parent), "TRL_EXPERIMENTAL_SILENCE": "1", "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryFile("w+") as log:
        worker = subprocess.Popen(
            [args.trl_python, str(root / "trl_step.py"), json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            text=True,
        )
        asked, answers = worker.stdin, worker.stdout
        assert asked is not None and answers is not None

        def answer() -> str:
            line = answers.readline()
            if not line:
                log.seek(0)
                sys.exit(f"{args.trl_python} benchmarks/trl_step.py failed:\n{log.read()[-2000:]}")
            return line

        def step(_: int) -> Measured:
            print(file=asked, flush=True)
            return Measured(**json.loads(answer()))

        try:
            answer()  # it is ready
            yield step
        finally:
            asked.close()
            worker.wait()


# --- the measurement


def overrides_of(algorithm: str, args: argparse.Namespace) -> list[str]:
    """What differs from the quickstart of the environment."""
    num_episodes = args.groups * args.group_size
    overrides = [
        *ALGORITHMS[algorithm],
        f"es_manager.train.env_groups={args.groups}",
        f"es_manager.train.group_size={args.group_size}",
        f"ppo_mini_batch_size={max(1, num_episodes // args.mini_batches)}",
        f"micro_batch_size_per_gpu={args.micro_batch}",
        f"log_prob_micro_batch_size_per_gpu={max(args.micro_batch, 16)}",
        f"actor_rollout_ref.model.enable_gradient_checkpointing={args.gradient_checkpointing}",
        f"actor_rollout_ref.rollout.old_log_probs={args.old_log_probs}",
        "actor_rollout_ref.rollout.rollout_filter_value=1.0",
        "actor_rollout_ref.rollout.rollout_filter_include_zero=True",
        "actor_rollout_ref.actor.optim.lr=1e-6",  # the weights, and with them the lengths, hardly move
        "trainer.total_training_steps=1000000",
        "trainer.gradient_analysis_mode=False",
        "collapse_detection.compute_freq=0",
        "trainer.test_freq=0",
        "trainer.save_freq=0",
        "trainer.save_episodes_every=0",
        "trainer.resume_mode=disable",
        "trainer.logger=[]",
    ]
    if args.shape:
        overrides += [
            f"actor_rollout_ref.rollout.response_length={REPLY_TOKENS}",
            "actor_rollout_ref.rollout.max_model_len=2048",
            "actor_rollout_ref.rollout.stop_strings=[]",
            "actor_rollout_ref.actor.entropy_from_logits_with_chunking=True",
        ]
    return overrides


def measure(contenders: dict[str, Step], repeats: int) -> dict[str, list[Measured]]:
    """`repeats` rounds after an uncounted one; the contenders take turns within a round."""
    rounds: dict[str, list[Measured]] = {name: [] for name in contenders}
    for number in range(1, repeats + 2):
        for name, step in contenders.items():
            measured = step(number)
            print(f"  {name}, step {number}: {measured.seconds['step']:.2f} s", flush=True)
            if number > 1:
                rounds[name].append(measured)
    return rounds


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
    batch, _ = score(
        kept.kept,
        trainer.config,
        trainer.workers,
        kl_controller=trainer.kl_controller,
        kept_ratio=kept.kept_ratio,
        timer=trainer.timers,
    )
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
                    scoring=sum(seconds.get(f"timing_s/{stage}", 0.0) for stage in SCORING),
                    update=seconds["timing_s/update_actor"],
                )
            )
    return found


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
    from ragen.workers.train_kernels import head_logprobs as fused_logprobs

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
    trainer.measure(1)
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


# --- tables


def median_of(rounds: list[Measured], stage: str) -> float:
    return statistics.median(one.seconds.get(stage, 0.0) for one in rounds)


def stage_table(algorithm: str, rounds: list[Measured], trainer: BenchTrainer) -> list[str]:
    num_tokens, num_sampled, num_played = (
        statistics.mean(getattr(one, name) for one in rounds) for name in ("num_tokens", "num_sampled", "num_played")
    )
    model, device = trainer.workers.actor.model, trainer.workers.actor.device.type
    embedding = model.get_input_embeddings().weight.numel()
    body = sum(weight.numel() for name, weight in model.named_parameters() if "lm_head" not in name) - embedding
    flops = {
        "update_critic": 6 * body * num_tokens,
        "update_actor": 6 * (body * num_tokens + embedding * num_sampled),
    }
    num_episodes = len(trainer.episodes)
    lines = [
        f"{algorithm}: {num_episodes} episodes of {num_tokens / num_episodes:.0f} tokens, "
        f"{num_sampled / num_episodes:.0f} of them sampled; peak memory {max(one.peak_gib for one in rounds):.2f} GiB",
        f"{'stage':<16}{'seconds':>9}{'share':>8}{'tokens/s':>10}" + (f"{'MFU':>8}" if device == "cuda" else ""),
    ]
    whole = median_of(rounds, "step")
    for stage in ("gen", *SCORING, *UPDATES, "step"):
        seconds = median_of(rounds, stage)
        if not seconds or (stage == "gen" and not trainer.is_playing):
            continue
        count = num_played if stage == "gen" else num_tokens
        line = f"{stage:<16}{seconds:>9.3f}{seconds / whole:>8.1%}{count / seconds:>10.0f}"
        if device == "cuda" and stage in flops:
            line += f"{flops[stage] / seconds / PEAK_FLOPS:>8.1%}"
        lines.append(line)
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


def trl_table(ours: list[Measured], theirs: list[Measured], num_episodes: int) -> list[str]:
    lines = [
        "grpo beside TRL, medians",
        f"{'':<7}{'tokens/episode':>15}{'sampled':>9}{'gen':>8}{'scoring':>9}{'update':>8}{'step':>8}{'tokens/s':>10}"
        f"{'peak GiB':>10}{'x TRL':>8}{'in CPU time':>13}",
    ]
    for name, rounds, scoring, update in (("ours", ours, SCORING, UPDATES), ("TRL", theirs, ("score",), ("update",))):
        tokens, sampled = (statistics.mean(getattr(r, key) for r in rounds) for key in ("num_tokens", "num_sampled"))
        parts = [
            statistics.median(sum(one.seconds.get(stage, 0.0) for stage in stages) for one in rounds)
            for stages in (("gen",), scoring, update, ("step",))
        ]
        pairs = list(zip(theirs, rounds, strict=True))
        by_clock = statistics.median(other.seconds["step"] / one.seconds["step"] for other, one in pairs)
        by_cpu = statistics.median(other.cpu_seconds / one.cpu_seconds for other, one in pairs)
        lines.append(
            f"{name:<7}{tokens / num_episodes:>15.1f}{sampled / num_episodes:>9.1f}{parts[0]:>8.2f}{parts[1]:>9.2f}"
            f"{parts[2]:>8.2f}{parts[3]:>8.2f}{tokens / parts[3]:>10.0f}{max(r.peak_gib for r in rounds):>10.2f}"
            f"{by_clock:>8.2f}{by_cpu:>13.2f}"
        )
    return lines


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", choices=CONFIGS, default="frozen_lake")
    parser.add_argument("--shape", choices=SHAPES, help="random weights instead of the embedded model")
    parser.add_argument("--groups", type=int, help="default: 16; 8 with a shape")
    parser.add_argument("--group-size", type=int, help="default: 8; 16 (0.5B, 3B)")
    parser.add_argument("--micro-batch", type=int, help="episodes in one pass; default: 32; 4 (3B)")
    parser.add_argument("--mini-batches", type=int, default=2, help="optimizer steps in a training step")
    parser.add_argument("--old-log-probs", choices=("recompute", "engine"), default="recompute")
    parser.add_argument("--gradient-checkpointing", action="store_true")
    parser.add_argument("--update-only", action="store_true", help="no rollouts; with --shape")
    parser.add_argument("--algorithms", nargs="+", choices=ALGORITHMS, default=list(ALGORITHMS))
    parser.add_argument("--repeats", type=int, help="counted rounds; default: 5; 1 with a shape")
    parser.add_argument("--naive", type=int, metavar="N", help="also a padded update, micro batches of N; with --shape")
    parser.add_argument("--profile", action="store_true", help="kernels of the actor's update; CUDA only")
    parser.add_argument("--trl-python", help="an interpreter that has TRL; CPU only")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args()
    if args.update_only and not args.shape:
        parser.error("--update-only needs --shape: without one there is nothing but rollouts to learn from")
    if args.trl_python and (args.shape or args.device != "cpu" or "grpo" not in args.algorithms):
        parser.error("--trl-python is for the GRPO step of the embedded models on a CPU")
    shape = SHAPES.get(args.shape)
    args.groups = args.groups or (shape.num_groups if shape else 16)
    args.group_size = args.group_size or (shape.group_size if shape else 8)
    args.micro_batch = args.micro_batch or (shape.micro_batch_size if shape else 32)
    args.repeats = args.repeats or (1 if shape else 5)
    return args


def main() -> None:
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    lines: list[str] = []
    for algorithm in args.algorithms:
        overrides = overrides_of(algorithm, args)
        with open_trainer(load_config(CONFIGS[args.env], overrides), args) as trainer:
            contenders: dict[str, Step] = {algorithm: trainer.measure}
            if args.trl_python and algorithm == "grpo":
                with open_trl(args, overrides) as trl_step:
                    rounds = measure(contenders | {"TRL": trl_step}, args.repeats)
            else:
                rounds = measure(contenders, args.repeats)
            lines += ["", *stage_table(algorithm, rounds[algorithm], trainer)]
            if args.naive:
                ours, theirs = median_of(rounds[algorithm], "update_actor"), measure_naive(trainer, args.naive)
                lines.append(f"naive update   {theirs:>9.3f}   ours {theirs / ours:.2f}x as fast")
            if args.device == "cuda" and args.shape:
                lines.append(loss_memory(trainer.workers.actor.model))
            if args.profile:
                lines += ["", *profile(trainer)]
            elif algorithm == "grpo":
                lines += ["", *kept_table(measure_kept(trainer, args.repeats))]
            if "TRL" in rounds:
                lines += ["", *trl_table(rounds[algorithm], rounds["TRL"], len(trainer.episodes))]
            num_parameters = trainer.workers.actor.model.num_parameters()
        del trainer, contenders
        gc.collect()
        if args.device == "cuda":
            torch.cuda.empty_cache()
    print(
        f"{machine(args.device)}; torch {torch.__version__}, transformers {transformers.__version__}\n"
        f"{args.shape or args.env}: {num_parameters / 1e6:.2f}M parameters, {args.groups} groups of "
        f"{args.group_size}, {args.mini_batches} optimizer steps, micro batches of {args.micro_batch}, old log-probs: "
        f"{args.old_log_probs}; median of {args.repeats} rounds"
    )
    print("\n".join(lines))
    if not args.trl_python and not args.shape:
        print("\nTRL is left out: --trl-python names an interpreter that has it; --help says how to make one.")


if __name__ == "__main__":
    main()
