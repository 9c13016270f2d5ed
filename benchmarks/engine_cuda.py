"""The graph engine on a GPU: every row of the rollout table, its floor and its alternatives, in one run.

    python benchmarks/engine_cuda.py                                  # all rows, 0.5B and 3B shapes
    python benchmarks/engine_cuda.py --sizes qwen2.5-0.5B --rows decode --profile
    python benchmarks/engine_cuda.py --sizes qwen2.5-0.5B --rows real --model models/Qwen2.5-0.5B-Instruct

Random weights of Qwen2.5's shapes in bfloat16; replies end early in the row `real` only. Rows:

    decode    128 or 512 sequences, each with 372 prompt tokens of its own; 256 tokens are drawn with log-probs, and
              steps 20 to 240 are timed (500 tokens of context on average)
    prompts   400 prompt tokens of its own and 256 new ones for each sequence, prefill included
    turns     8 groups of 16 Sokoban episodes, 5 turns of 100 tokens, through the agent; against the same agent on
              transformers.generate, which computes the conversation again at every turn
    real      8 groups of 16 Sokoban episodes, 5 turns, replies as long as those of a real run (--lengths-from RUN: of
              your own) and answers of drawn moves: most replies end early, a few hold everybody up. With --model DIR
              also that model, as it is, at temperature 1 with 400 tokens at most. Says what the first rollout of the
              process took.

The floor of a step is what it must read (all weights but the embedding, and the live keys and values) at the speed of
a large copy, measured here. `generate` and `static` (transformers' static cache, compiled) draw 32 tokens after the
same prompts. The numbers of vLLM 0.24 were recorded on another day, on the same kind of card and shapes.
"""

from __future__ import annotations

import ragen  # isort: skip  # noqa: F401  (before torch: it makes OpenMP's waiting threads sleep)

import argparse
import platform
import time
from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from parts.real_rollout import model_players, random_players, real_row
from parts.replies import reply_lengths
from rollout import SIZES, GenerateEngine, Setup, build_model, build_setup, play_with_engine
from transformers import GenerationConfig

from ragen.engine.base import Request, SamplingParams
from ragen.engine.native.build import native_engine

VLLM_RECORDED = {
    ("qwen2.5-3B", 128): 18_400,
    ("qwen2.5-3B", 512): 25_000,
    ("qwen2.5-0.5B", 128): 22_800,
    ("qwen2.5-0.5B", 512): 30_900,
}
"""Tokens per second with log-probs, prompt 400, 256 new tokens, prefill included."""
ROWS = ["real", "decode", "prompts", "turns"]
BATCHES = {"qwen2.5-0.5B": (128, 512), "qwen2.5-3B": (128, 512)}


def copy_bandwidth() -> float:
    """Bytes per second of a large device-to-device copy, read plus written."""
    source = torch.empty(2**31, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    seconds = []
    for _ in range(8):
        torch.cuda.synchronize()
        started = time.perf_counter()
        target.copy_(source)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    return 2 * source.numel() / min(seconds)


def floor_bytes(model: Any, batch: int, context: int) -> int:
    """Bytes a decode step must read."""
    config = model.config
    weights = sum(p.numel() for p in model.parameters())  # the tied embedding counts once: it is the head
    head_dim = config.hidden_size // config.num_attention_heads
    cache = 2 * config.num_key_value_heads * head_dim * config.num_hidden_layers * context * batch
    return 2 * (weights + cache)


def prompts(batch: int, length: int, seed: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(10, 100_000, (batch, length), generator=generator).tolist()


def make_engine(model: Any, batch: int) -> Any:
    return native_engine(model, max_num_seqs=batch, max_model_len=1024)


def requests(batch: int, *, length: int, new: int, seed: int) -> list[Request]:
    params = SamplingParams(max_tokens=new)
    return [
        Request(session=session, prompt_ids=ids, params=params, seed=seed * batch + session)
        for session, ids in enumerate(prompts(batch, length, seed))
    ]


def submit(engine: Any, batch: int, *, length: int, new: int, seed: int) -> None:
    for request in requests(batch, length=length, new=new, seed=seed):
        engine.submit(request)


def drain(engine: Any, batch: int) -> int:
    """Step until every reply is there; number of tokens."""
    done = []
    while len(done) < batch:
        done += engine.step()
    return sum(len(completion.token_ids) for completion in done)


def seconds_per_step(engine: Any, batch: int, *, first: int = 20, last: int = 240) -> float:
    engine.end_rollout()
    submit(engine, batch, length=372, new=256, seed=1)
    for _ in range(first):
        engine.step()
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(last - first):
        engine.step()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    drain(engine, batch)
    return seconds / (last - first)


def seconds_with_prompts(engine: Any, batch: int, seed: int) -> float:
    engine.end_rollout()
    asked = requests(batch, length=400, new=256, seed=seed)
    torch.cuda.synchronize()
    started = time.perf_counter()
    for request in asked:
        engine.submit(request)
    num_tokens = drain(engine, batch)
    assert num_tokens == 256 * batch
    return time.perf_counter() - started


def transformers_rate(model: Any, batch: int, *, is_static: bool, new: int = 32) -> float:
    """Tokens per second of decoding with transformers; prefill is taken out by a run with one new token."""
    ids = torch.tensor(prompts(batch, 372, 2), device="cuda")

    def seconds(tokens: int) -> float:
        config = GenerationConfig(
            do_sample=True,
            top_k=0,
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            pad_token_id=0,
            cache_implementation="static" if is_static else None,
        )
        torch.cuda.synchronize()
        started = time.perf_counter()
        with torch.inference_mode():
            model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
        torch.cuda.synchronize()
        return time.perf_counter() - started

    seconds(new), seconds(2)  # compile, choose kernels
    return batch * (new - 2) / (seconds(new) - seconds(2))


def profile(engine: Any, batch: int, name: str) -> None:
    """Kernels of ten decode steps, by time."""
    engine.end_rollout()
    submit(engine, batch, length=500, new=64, seed=3)
    for _ in range(10):
        engine.step()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as trace:
        for _ in range(10):
            engine.step()
        torch.cuda.synchronize()
    drain(engine, batch)
    print(f"\nkernels of a step, {name}, {batch} sequences: microseconds a step, calls a step, microseconds a call")
    for event in sorted(trace.key_averages(), key=lambda e: -e.self_device_time_total)[:14]:
        per_step = event.self_device_time_total / 10
        each = event.self_device_time_total / event.count
        print(f"{per_step:>9.1f}{event.count / 10:>8.1f}{each:>9.2f}  {event.key[:110]}")


def multi_turn(name: str, repeats: int, *, with_generate: bool) -> tuple[float, float | None]:
    """Seconds of a rollout with ours, the best after one that is not counted, and with generate."""
    args = Namespace(size=name, episodes=128, group_size=16, turns=5, reply_tokens=100, device="cuda")
    setup: Setup = build_setup(args)
    rollout = setup.config.actor_rollout_ref.rollout
    ours = native_engine(
        setup.model, setup.tokenizer, max_num_seqs=rollout.max_num_seqs, max_model_len=rollout.max_model_len
    )
    seconds = []
    for _ in range(repeats + 1):
        ours.end_rollout()
        seconds.append(play_with_engine(setup, ours).seconds)
    ours.close()
    if not with_generate:
        return min(seconds[1:]), None
    return min(seconds[1:]), play_with_engine(setup, GenerateEngine(setup.model, setup.tokenizer.pad_token_id)).seconds


def real_rows(args: Namespace) -> list[list[str]]:
    """The row `real` of the model, where there is one, and of every size."""
    lengths = reply_lengths(args.lengths_from)
    shape = f"{args.groups}x{args.group_size} episodes, {args.turns} turns"
    contenders = (
        {} if args.model is None else {args.model.name: (f"{shape} as they come", partial(model_players, args.model))}
    )
    contenders |= {name: (f"{shape} of drawn lengths", partial(random_players, name, lengths)) for name in args.sizes}
    rows = []
    for name, (title, make) in contenders.items():
        rows.append(real_row(name, title, partial(make, args), args.repeats))
        print(*rows[-1], sep="  ", flush=True)
        if args.device == "cuda":
            torch.cuda.empty_cache()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(BATCHES))
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=ROWS)
    parser.add_argument("--batches", nargs="+", type=int)
    parser.add_argument("--alternatives", nargs="*", choices=["generate", "static"], default=["generate", "static"])
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--repeats", type=int, default=2)
    real = parser.add_argument_group("row real")
    real.add_argument("--lengths-from", type=Path, metavar="RUN", help="a run directory or an episode file")
    real.add_argument("--model", type=Path, metavar="DIR", help="also a real model")
    real.add_argument("--groups", type=int, default=8)
    real.add_argument("--group-size", type=int, default=16)
    real.add_argument("--turns", type=int, default=5)
    real.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: the row real alone")
    args = parser.parse_args()
    if args.device == "cpu" and args.rows != ["real"]:
        parser.error("--device cpu is for --rows real; the other rows time CUDA kernels")
    if args.rows != ["real"] and not set(args.sizes) <= set(BATCHES):
        parser.error(f"other sizes than {', '.join(BATCHES)} are for --rows real")

    bandwidth = copy_bandwidth() if args.device == "cuda" else 0.0
    machine = f"{torch.cuda.get_device_name()}; a copy moves {bandwidth / 1e12:.2f} TB/s" if bandwidth else ""
    print(f"{machine or platform.processor() or 'CPU'}; torch {torch.__version__}", flush=True)
    table: list[list[str]] = []
    compared: list[tuple[str, float, list[str]]] = []
    if "real" in args.rows:  # first, so that the first rollout of the process is one
        table += real_rows(args)
    for name in args.sizes if args.rows != ["real"] else ():
        model = build_model(SIZES[name], Namespace(pad_token_id=0), "cuda")
        for batch in args.batches or BATCHES[name]:
            engine = make_engine(model, batch)
            if "decode" in args.rows:
                step = min(seconds_per_step(engine, batch) for _ in range(args.repeats))
                floor = floor_bytes(model, batch, 372 + 130) / bandwidth
                row = [name, f"decode {batch}", f"{batch / step:,.0f}", f"{step * 1e3:.2f}", f"{step / floor:.2f}"]
                if batch == 128:
                    compared.append((name, batch / step, row))
                table.append(row)
                print(*row, sep="  ", flush=True)
            if "prompts" in args.rows:
                seconds_with_prompts(engine, batch, 3)
                seconds = min(seconds_with_prompts(engine, batch, 4 + i) for i in range(args.repeats))
                rate, recorded = 256 * batch / seconds, VLLM_RECORDED[name, batch]
                row = [name, f"prompt 400 + 256, {batch}", f"{rate:,.0f}", "", ""]
                row.append(f"{rate / recorded:.2f}x vLLM (recorded {recorded:,})")
                table.append(row)
                print(*row, sep="  ", flush=True)
            if args.profile:
                profile(engine, batch, name)
            engine.close()
            del engine
        del model
        torch.cuda.empty_cache()
        if "turns" in args.rows:
            ours, theirs = multi_turn(name, args.repeats, with_generate="generate" in args.alternatives)
            num_tokens = 128 * 5 * 100
            row = [name, "8x16 episodes, 5 turns of 100", f"{num_tokens / ours:,.0f}", "", ""]
            if theirs is not None:
                row.append(f"{theirs / ours:.1f}x generate with re-prefill ({num_tokens / theirs:,.0f})")
            table.append(row)
            print(*row, sep="  ", flush=True)
            torch.cuda.empty_cache()

    # Last: after transformers' compiled graphs (torch 2.11) the captures of others fail in the same process.
    for kind in args.alternatives if compared else ():
        for name, rate, row in compared:
            model = build_model(SIZES[name], Namespace(pad_token_id=0), "cuda")
            other = transformers_rate(model, 128, is_static=kind == "static")
            row.append(f"{rate / other:.1f}x {kind} ({other:,.0f})")
            print(*row, sep="  ", flush=True)
            del model
            torch.cuda.empty_cache()

    print("\n| size | row | tokens/s | ms/step | step / floor | against |\n|---|---|---|---|---|---|")
    for row in table:
        print("| " + " | ".join([*row[:5], ", ".join(row[5:])]) + " |")


if __name__ == "__main__":
    main()
