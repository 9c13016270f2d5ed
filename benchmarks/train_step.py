"""Training steps: time per stage of GRPO and PPO, memory, the filter's saving, and TRL's GRPO step in the same run.

    python benchmarks/train_step.py --env sokoban --trl-python /tmp/trl/bin/python
    python benchmarks/train_step.py --shape 0.5B --device cuda
    python benchmarks/train_step.py --shape 0.5B --replies real --algorithms grpo

Without --shape the embedded model of an environment plays and learns through the parts of the real trainer, on levels
that change with the step. With --shape the weights are random, and two things differ: replies have 100 tokens, and
after the rollout, which is only timed, scoring and updates take synthetic episodes of about 1500 tokens in 5 turns, a
third of them sampled. With --replies real lengths are drawn from those of a real run (--lengths-from RUN: of your own),
400 at most, answers are drawn moves, and what was played is scored and trained on: the tail of a real rollout shows.

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
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import transformers
from parts.real_rollout import RESPONSE_LENGTH
from parts.trainer import REPLY_TOKENS, SHAPES, BenchTrainer, Measured, open_trainer
from parts.update import SCORING, kept_table, loss_memory, measure_kept, measure_naive, measure_shared, profile
from rollout import machine

from ragen.config import load_config

CONFIGS = {"frozen_lake": "quickstart", "sokoban": "quickstart_sokoban"}
ALGORITHMS = {
    "grpo": [
        "algorithm.adv_estimator=grpo",
        "actor_rollout_ref.actor.use_kl_loss=True",
        "actor_rollout_ref.actor.kl_loss_coef=0.001",
    ],
    "ppo": ["algorithm.adv_estimator=gae", "algorithm.use_kl_in_reward=True", "algorithm.kl_ctrl.kl_coef=0.001"],
}
UPDATES = ("update_critic", "update_actor")
PEAK_FLOPS = 790e12
"""Of an H200 in bfloat16, what large matrix products reach."""

Step = Callable[[int], Measured]


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
        is_real = args.replies == "real"
        overrides += [
            f"actor_rollout_ref.rollout.response_length={RESPONSE_LENGTH if is_real else REPLY_TOKENS}",
            f"actor_rollout_ref.rollout.max_model_len={3600 if is_real else 2048}",
            *(["agent_proxy.max_turn=5"] if is_real else []),
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
    parser.add_argument(
        "--replies", choices=("equal", "real"), default="equal", help="how long replies are; with --shape"
    )
    parser.add_argument("--lengths-from", type=Path, metavar="RUN", help="whose replies --replies real draws from")
    parser.add_argument("--update-only", action="store_true", help="no rollouts; with --shape")
    parser.add_argument("--algorithms", nargs="+", choices=ALGORITHMS, default=list(ALGORITHMS))
    parser.add_argument("--repeats", type=int, help="counted rounds; default: 5; 1 with a shape")
    parser.add_argument("--naive", type=int, metavar="N", help="also a padded update, micro batches of N; with --shape")
    parser.add_argument("--shared", action="store_true", help="also scoring and update without common beginnings")
    parser.add_argument("--profile", action="store_true", help="kernels of the actor's update; CUDA only")
    parser.add_argument("--trl-python", help="an interpreter that has TRL; CPU only")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args()
    if args.update_only and not args.shape:
        parser.error("--update-only needs --shape: without one there is nothing but rollouts to learn from")
    if args.replies == "real" and not args.shape:
        parser.error("--replies real needs --shape: the replies of a model that can end them are real already")
    if args.shared and "grpo" not in args.algorithms:
        parser.error("--shared is for GRPO")
    if args.lengths_from and args.replies != "real":
        parser.error("--lengths-from is for --replies real")
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
            contenders: dict[str, Step] = {algorithm: trainer.timed_step}
            if args.trl_python and algorithm == "grpo":
                with open_trl(args, overrides) as trl_step:
                    rounds = measure(contenders | {"TRL": trl_step}, args.repeats)
            else:
                rounds = measure(contenders, args.repeats)
            lines += ["", *stage_table(algorithm, rounds[algorithm], trainer)]
            if args.naive:
                ours, theirs = median_of(rounds[algorithm], "update_actor"), measure_naive(trainer, args.naive)
                lines.append(f"naive update   {theirs:>9.3f}   ours {theirs / ours:.2f}x as fast")
            if args.shared and algorithm == "grpo":
                lines += ["", *measure_shared(trainer, args.repeats)]
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
