"""How long a training step takes on 1 to 64 GPUs, predicted; and the prediction's rules checked on CPU ranks.

    python benchmarks/scaling.py                      # the table for H200s with fast links between machines
    python benchmarks/scaling.py --node-gb-s 12.5     # machines with 100 Gbit/s Ethernet
    python benchmarks/scaling.py --memory             # memory of each GPU
    python benchmarks/scaling.py --check              # real runs on 1, 2 and 3 CPU ranks against the rules

The rules, for R ranks:
- Groups are dealt out whole: the busiest rank plays ceil(groups / R) of them. All ranks gather the policy before.
- Scoring and updates cost a rank its share of the tokens. Every pass of an update gathers all weights twice and
  scatters the gradients once; on GPUs this overlaps with arithmetic, on CPUs it does not.
- The driver's own work (filter, advantages, files) does not shrink.

GPU rates are those measured on one H200 where docs/performance.md has them, else assumptions; all are printed. The
CPU check takes the times of one process with the share of a rank, the speed of gloo and the share of a core that so
many processes get here (all measured on the spot), and predicts two and three ranks.
"""

from __future__ import annotations

import ragen  # isort: skip  # noqa: F401  (before torch: it makes OpenMP's waiting threads sleep)

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from rollout import Size, build_model

from ragen.config import load_config
from ragen.modeling.load import load_tokenizer
from ragen.models.resolve import resolve_model
from ragen.tracking.names import seconds
from ragen.tracking.rundir import read_metrics

NUM_GPUS = (1, 2, 4, 8, 16, 32, 64)
GB = 1e9


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """A model of the Qwen2.5 family, or of its size."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    mlp: int
    vocab: int = 152_064
    is_tied: bool = False

    @property
    def num_layer_parameters(self) -> float:
        kv = self.hidden * self.kv_heads // self.heads
        return self.layers * (2 * self.hidden * (self.hidden + kv) + 3 * self.hidden * self.mlp)

    @property
    def num_parameters(self) -> float:
        return self.num_layer_parameters + (1 if self.is_tied else 2) * self.vocab * self.hidden

    @property
    def kv_bytes(self) -> float:
        """Keys and values of a token, in bfloat16."""
        return 2 * 2 * self.layers * self.hidden * self.kv_heads / self.heads


SHAPES = {
    "0.5B": Shape(hidden=896, layers=24, heads=14, kv_heads=2, mlp=4864, is_tied=True),
    "1.5B": Shape(hidden=1536, layers=28, heads=12, kv_heads=2, mlp=8960, is_tied=True),
    "3B": Shape(hidden=2048, layers=36, heads=16, kv_heads=2, mlp=11_008, is_tied=True),
    "7B": Shape(hidden=3584, layers=28, heads=28, kv_heads=4, mlp=18_944),
    "14B": Shape(hidden=5120, layers=48, heads=40, kv_heads=8, mlp=13_824),
    "32B": Shape(hidden=5120, layers=64, heads=40, kv_heads=8, mlp=27_648),
    "70B": Shape(hidden=8192, layers=80, heads=64, kv_heads=8, mlp=29_568),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """Rates of one GPU and of what connects several."""

    memory_gb: float = 141.0
    memory_gb_s: float = 4200.0
    """Measured: a large copy on one H200."""
    decode_overhead: float = 1.18
    """Measured: decode steps against the time to read weights, keys and values."""
    layer_s: float = 30e-6
    """Measured: the rest of a decode step, for each layer."""
    flops: float = 700e12
    """Measured: matrix products of prompts, 690 to 830 TFLOP/s."""
    train_mfu: float = 0.54
    """Measured at 3B without sharding: share of 790 TFLOP/s in updates, 54 to 58 %; 46 % at 0.5B."""
    score_mfu: float = 0.6
    """Measured likewise: the same without gradients, 57 to 65 %; 44 % at 0.5B."""
    link_gb_s: float = 350.0
    """Assumed: what all-gather reaches over NVLink, per GPU."""
    node_gb_s: float = 320.0
    """Assumed: what it reaches between machines, all network cards of a machine together (8 x 400 Gbit/s)."""
    latency_s: float = 30e-6
    """Assumed: one collective, however small."""
    gpus_per_node: int = 8
    straggling: float = 1.15
    """Assumed: what is lost while the last episodes end."""

    def collective_s(self, num_bytes: float, num_ranks: int) -> float:
        """All-gather or reduce-scatter of so many bytes in all."""
        if num_ranks == 1:
            return 0.0
        speed = self.link_gb_s if num_ranks <= self.gpus_per_node else min(self.link_gb_s, self.node_gb_s)
        return self.latency_s + num_bytes * (num_ranks - 1) / num_ranks / (speed * GB)


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """What a step works on."""

    num_groups: int = 64
    group_size: int = 16
    tokens: int = 1500
    """Of an episode, prompts included."""
    sampled: int = 500
    """Of an episode."""
    max_num_seqs: int = 256
    mini_batches: int = 4
    micro_batch: int = 8
    is_ppo: bool = True


def predict(shape: Shape, load: Load, machine: Machine, num_ranks: int) -> dict[str, float]:
    """Stage -> seconds of one step."""
    size, layers = shape.num_parameters, shape.layers
    mine = ceil(load.num_groups / num_ranks) * load.group_size  # episodes of the busiest rank
    rows = min(mine, load.max_num_seqs)
    context = load.tokens / 2
    weights_s = machine.decode_overhead * 2 * size / (machine.memory_gb_s * GB)
    cache_s = machine.decode_overhead * rows * context * shape.kv_bytes / (machine.memory_gb_s * GB)
    decode_s = machine.layer_s * layers + cache_s + max(weights_s, 2 * size * rows / machine.flops)
    prompt_s = mine * (load.tokens - load.sampled) * 2 * size / machine.flops
    play_s = prompt_s + machine.straggling * ceil(mine / rows) * load.sampled * decode_s

    episodes = load.num_groups * load.group_size
    tokens = ceil(episodes / num_ranks) * load.tokens  # of this rank
    num_models = 2 if load.is_ppo else 1
    score_s = tokens * 2 * size / (machine.score_mfu * 790e12)
    passes = load.mini_batches * ceil(episodes / load.mini_batches / num_ranks / load.micro_batch)
    compute_s = tokens * 8 * size / (machine.train_mfu * 790e12)  # 6, and 2 for recomputed activations
    per_layer = [machine.collective_s(num_bytes * size / layers, num_ranks) for num_bytes in (2, 2, 4)]
    move_s = passes * layers * sum(per_layer)
    adam_s = load.mini_batches * 28 * size / num_ranks / (machine.memory_gb_s * GB)
    return {
        "gather": layers * machine.collective_s(2 * size / layers, num_ranks),
        "gen": play_s,
        "score": num_models * score_s,
        "update": num_models * (max(compute_s, move_s) + adam_s),
    }


def memory_gib(shape: Shape, load: Load, num_ranks: int, machine: Machine, *changes: str) -> float:
    """Of each GPU, by the estimate that a run prints when it starts."""
    from transformers import Qwen2Config

    from ragen.trainer.starting.memory import GIB, estimate_memory

    per_node = min(num_ranks, machine.gpus_per_node)
    config = load_config(
        "_2_sokoban",
        [
            "system.CUDA_VISIBLE_DEVICES=''",
            f"trainer.n_gpus_per_node={per_node}",
            f"trainer.nnodes={num_ranks // per_node}",
            f"micro_batch_size_per_gpu={load.micro_batch}",
            f"actor_rollout_ref.rollout.max_num_seqs={load.max_num_seqs}",
            "actor_rollout_ref.actor.entropy_from_logits_with_chunking=True",
            f"algorithm.adv_estimator={'gae' if load.is_ppo else 'grpo'}",
            *changes,
        ],
    )
    model = Qwen2Config(
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        intermediate_size=shape.mlp,
        vocab_size=shape.vocab,
    )
    return estimate_memory(config, model, int(shape.num_parameters), device_memory=machine.memory_gb * GB).total / GIB


def show_predictions(load: Load, machine: Machine) -> None:
    print("Assumptions and measured rates:")
    for thing in (machine, load):
        for name in thing.__dataclass_fields__:
            print(f"  {name} = {getattr(thing, name):g}")
    print("\n| model | GPUs | gather | gen | score | update | step s | speed-up | GiB per GPU |\n|" + "---|" * 9)
    for name, shape in SHAPES.items():
        alone = sum(predict(shape, load, machine, 1).values())
        for num_ranks in NUM_GPUS:
            stages = predict(shape, load, machine, num_ranks)
            step, need = sum(stages.values()), memory_gib(shape, load, num_ranks, machine)
            fits = f"{need:.0f}" if need < machine.memory_gb * GB / 2**30 else f"{need:.0f}, too much"
            times = " | ".join(f"{seconds:.2f}" for seconds in stages.values())
            print(f"| {name} | {num_ranks} | {times} | {step:.1f} | {alone / step:.1f} | {fits} |")


def show_memory(load: Load, machine: Machine) -> None:
    """Three ways to train, each on some numbers of GPUs."""
    counts = (1, 2, 4, 8, 16, 32)
    ways = {
        "PPO": ["algorithm.adv_estimator=gae"],
        "GRPO": ["algorithm.adv_estimator=grpo"],
        "GRPO, lora.rank=64": ["algorithm.adv_estimator=grpo", "lora.rank=64"],
    }
    print(f"GiB of each GPU at the peak of a step, with a micro batch of {load.micro_batch}; a GPU has:", end=" ")
    print(f"{machine.memory_gb * GB / 2**30:.0f}\n")
    print("| model | algorithm | " + " | ".join(f"{count} GPUs" for count in counts) + " |\n|" + "---|" * 8)
    for name, shape in SHAPES.items():
        for way, changes in ways.items():
            needs = [memory_gib(shape, load, count, machine, *changes) for count in counts]
            print(f"| {name} | {way} | " + " | ".join(f"{need:.0f}" for need in needs) + " |")


# The check on CPU ranks

STAGES = ("gen", "old_log_prob", "values", "update_critic", "update_actor")
GROUP_SIZE, MICRO_BATCH, MINI_BATCHES = 4, 4, 2
CHECKED = Size(hidden=256, layers=6, heads=4, kv_heads=4, mlp=1024, vocab=0, num_episodes=0)
"""Random weights: enough arithmetic in a layer that moving it is not everything."""


def save_model(folder: Path) -> float:
    """A model and its tokenizer to train from; its number of parameters."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    tokenizer = load_tokenizer(resolve_model("tiny", env_types=["frozen_lake"]))
    model = build_model(CHECKED, tokenizer, "cpu")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model.num_parameters()


def measure(model: Path, num_ranks: int, *, groups: int, steps: int) -> dict[str, float]:
    """Stage -> median seconds over the steps after the first."""
    from ragen.trainer.build import build_trainer

    with tempfile.TemporaryDirectory() as folder:
        config = load_config(
            "_3_frozen_lake",
            [
                f"model_path={model}",
                "system.CUDA_VISIBLE_DEVICES=''",
                f"trainer.n_gpus_per_node={num_ranks}",
                f"trainer.default_local_dir={folder}",
                f"trainer.total_training_steps={steps}",
                f"es_manager.train.env_groups={groups}",
                f"es_manager.train.group_size={GROUP_SIZE}",
                f"ppo_mini_batch_size={groups * GROUP_SIZE // MINI_BATCHES}",
                f"micro_batch_size_per_gpu={MICRO_BATCH}",
                "agent_proxy.max_turn=2",
                "actor_rollout_ref.rollout.response_length=32",
                "actor_rollout_ref.model.enable_gradient_checkpointing=False",
                "trainer.logger=[]",
                "trainer.val_before_train=False",
                "trainer.test_freq=0",
                "trainer.save_freq=0",
                "trainer.gradient_analysis_mode=False",
                "collapse_detection.compute_freq=0",
            ],
        )
        trainer = build_trainer(config, device="cpu")
        assert trainer is not None
        trainer.fit()
        rows = [row for row in read_metrics(Path(folder)) if row["step"] > 1]
    return {name: statistics.median(row[seconds(name)] for row in rows) for name in (*STAGES, "step")}


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """What so many processes of this machine get at this moment."""

    core: float
    """Share of a core for each."""
    latency_s: float
    gb_s: float

    def collective_s(self, num_bytes: float, num_ranks: int) -> float:
        return self.latency_s + num_bytes * (num_ranks - 1) / num_ranks / (self.gb_s * GB)


def measure_link(num_ranks: int) -> Link:
    import torch.multiprocessing as mp

    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_link_rank, args=(num_ranks, folder), nprocs=num_ranks)  # type: ignore[attr-defined]
        core, latency, speed = map(float, (Path(folder) / "link").read_text().split())
    return Link(core=core, latency_s=latency, gb_s=speed)


def _link_rank(rank: int, num_ranks: int, folder: str) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=num_ranks)

    def seconds(numbers: int, repeats: int) -> float:
        parts, part = [torch.zeros(numbers) for _ in range(num_ranks)], torch.zeros(numbers)
        times = []
        for _ in range(repeats):
            started = time.perf_counter()
            dist.all_gather(parts, part)
            times.append(time.perf_counter() - started)
        return statistics.median(times)

    latency, large = seconds(16, 100), seconds(2**20, 10)
    dist.barrier()
    started, used = time.perf_counter(), time.process_time()
    while time.perf_counter() - started < 2:
        pass
    core = (time.process_time() - used) / 2
    if rank == 0:
        speed = 4 * 2**20 * max(1, num_ranks - 1) / max(large - latency, 1e-6) / GB
        (Path(folder) / "link").write_text(f"{core} {latency} {speed}")
    dist.destroy_process_group()


def predict_cpu(
    share: dict[str, float], whole: dict[str, float], num_ranks: int, *, groups: int, size: float, links: Sequence[Link]
) -> dict[str, float]:
    """Times of `num_ranks` ranks from those of one process with a rank's share of the groups, and with all of them."""
    alone, link = links
    slower = alone.core / link.core  # ranks without a core of their own take turns
    samples = groups * GROUP_SIZE / MINI_BATCHES
    passes = MINI_BATCHES * ceil(samples / num_ranks / MICRO_BATCH)
    parts = CHECKED.layers + 1  # the layers, and embedding with head
    gather, scatter = (link.collective_s(num_bytes * size / parts, num_ranks) for num_bytes in (4, 4))
    moves = {
        "gen": parts * gather,
        "old_log_prob": 0.0,
        "values": passes * parts * gather,
        "update_critic": passes * parts * (2 * gather + scatter),
        "update_actor": passes * parts * (2 * gather + scatter),
    }
    stages = {name: share[name] * slower + moves[name] for name in STAGES}
    rest = whole["step"] - sum(whole[name] for name in STAGES)
    return stages | {"step": sum(stages.values()) + rest}


def check(groups: int, steps: int) -> list[tuple[int, str, float, float]]:
    """(ranks, stage, predicted, measured) for 1, 2 and 3 CPU ranks; `groups` divides by 2 and 3."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder)
        size, alone = save_model(model), measure_link(1)
        whole = measure(model, 1, groups=groups, steps=steps)
        rows = [(1, name, seconds, seconds) for name, seconds in whole.items()]
        for num_ranks in (2, 3):
            share = measure(model, 1, groups=groups // num_ranks, steps=steps)
            links = alone, measure_link(num_ranks)
            print(f"{num_ranks} processes here: {links[1]}")
            predicted = predict_cpu(share, whole, num_ranks, groups=groups, size=size, links=links)
            measured = measure(model, num_ranks, groups=groups, steps=steps)
            rows += [(num_ranks, name, predicted[name], measured[name]) for name in predicted]
    return rows


def show_check(groups: int, steps: int) -> None:
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    print(f"{cores} cores, load {load:.1f}, {groups} groups of {GROUP_SIZE} episodes, {CHECKED}")
    print("| ranks | stage | predicted s | measured s | measured / predicted |\n|---|---|---|---|---|")
    for num_ranks, stage, predicted, measured in check(groups, steps):
        print(f"| {num_ranks} | {stage} | {predicted:.3f} | {measured:.3f} | {measured / predicted:.2f} |")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Predicted step times of 0.5B to 70B models on 1 to 64 GPUs.")
    parser.add_argument("--check", action="store_true", help="real runs on 1, 2 and 3 CPU ranks against the rules")
    parser.add_argument("--groups", type=int, help="groups of a step (64; 6 with --check)")
    parser.add_argument("--steps", type=int, default=3, help="steps of each run of --check (%(default)s)")
    parser.add_argument("--grpo", action="store_true", help="no critic")
    add: Callable[..., Any] = parser.add_argument
    for name in ("memory-gb", "train-mfu", "score-mfu", "link-gb-s", "node-gb-s"):
        default = getattr(Machine(), name.replace("-", "_"))
        add(f"--{name}", type=float, default=default, help="(%(default)s)")
    parser.add_argument("--memory", action="store_true", help="estimated memory of each GPU")
    parser.add_argument("--micro-batch", type=int, default=8, help="samples of a pass (%(default)s)")
    args = parser.parse_args(argv)
    if args.check:
        show_check(args.groups or 6, args.steps)
        return
    machine = Machine(
        memory_gb=args.memory_gb,
        train_mfu=args.train_mfu,
        score_mfu=args.score_mfu,
        link_gb_s=args.link_gb_s,
        node_gb_s=args.node_gb_s,
    )
    load = Load(num_groups=args.groups or 64, is_ppo=not args.grpo, micro_batch=args.micro_batch)
    (show_memory if args.memory else show_predictions)(load, machine)


if __name__ == "__main__":
    main()
