"""vLLM as the rollout engine, on a GPU or on a CPU: each of its promises in a process of its own, and a table.

    python benchmarks/engine_vllm.py --model /path/to/Qwen2.5-0.5B-Instruct   # a GPU: at most six minutes
    .venv-vllm/bin/python benchmarks/engine_vllm.py --small                   # a CPU, the embedded model

Parts, each with a time limit; one that fails leaves the others alone:

    engine    weights handed over and the canary; weights that did not arrive; the replies of our own engine, with their
              log-probs; sleep with the memory that it frees, and wake-up
    train     five steps of the trainer with actor_rollout_ref.rollout.name=vllm
    kill      vLLM in a process of its own, which is killed in the middle of a reply
    rollout   8 groups of 16 Sokoban episodes, 5 turns, with vLLM and with our engine; replies are as long as those of a
              real run, 400 tokens at most, the same lengths for both (--replies longest: all as long as that)

A greedy reply may leave the other at a tie: there the model itself gives both tokens log-probs that differ by less than
the precision can tell (0.1 in bfloat16, 1e-3 in float32). A sampled one is compared as far as the tokens are the same.
"""

from __future__ import annotations

import ragen  # isort: skip  # noqa: F401  (before torch: it makes OpenMP's waiting threads sleep)

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ragen.config.load import load_config
from ragen.engine.base import Completion, Engine, ModelSource, Request, SamplingParams
from ragen.engine.native.build import native_engine
from ragen.errors import EngineError
from ragen.modeling.load import load_model, load_tokenizer
from ragen.models.resolve import resolve_model
from ragen.workers.local import text_logprobs

LIMITS = {"engine": 90, "train": 90, "kill": 60, "rollout": 110}
"""Part -> seconds."""
TIE = {torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.1}
SAME = 0.9
"""Share of the replies that must be as before after a sleep: batches of other sizes round differently."""
TEXT = "You push a box to the goal on a board of six by six cells. The box is left of you. What do you do? "
ROLLOUT = "actor_rollout_ref.rollout"


class Rows:
    """What a part found, written at once, so that it outlives the part."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, name: str, is_right: bool, text: str) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps([name, "ok" if is_right else "WRONG", text]) + "\n")

    def guard(self, name: str, part: Callable[[], None]) -> None:
        """A failure is a row."""
        try:
            part()
        except Exception as error:
            self.add(name, False, f"{type(error).__name__}: {error}")


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def model_folder(args: Namespace) -> Path:
    return Path(resolve_model(args.model, env_types=["sokoban"]))


def vllm_engine(args: Namespace, *, policy: Any = None, executor: str | None = None, **changes: Any) -> Any:
    from ragen.engine.vllm.engine import VllmEngine

    path = model_folder(args)
    sizes: dict[str, Any] = {"max_model_len": 1024 if args.small else 4096, "free_cache_engine": True}
    rollout = replace(load_config("base").actor_rollout_ref.rollout, name="vllm", **sizes | changes)
    source = ModelSource(path=path, tokenizer=load_tokenizer(path), policy=policy, device=device(), max_num_seqs=128)
    return VllmEngine(rollout, source, executor=executor)


def play(engine: Engine, requests: Sequence[Request]) -> list[Completion]:
    for request in requests:
        engine.submit(request)
    done: dict[int, Completion] = {}
    while len(done) < len(requests):
        done |= {completion.session: completion for completion in engine.step()}
    return [done[request.session] for request in requests]


def requests(args: Namespace, tokenizer: Any, temperature: float) -> list[Request]:
    count, length = (8, 24) if args.small else (64, 96)
    params = SamplingParams(max_tokens=length, temperature=temperature)
    prompts = [tokenizer.encode(TEXT * (1 + i % 5) + f"Board {i}: ", add_special_tokens=False) for i in range(count)]
    return [Request(session=i, prompt_ids=ids, params=params, seed=2**40 + i) for i, ids in enumerate(prompts)]


# --- engine


def part_engine(args: Namespace, rows: Rows) -> None:
    path = model_folder(args)
    policy, tokenizer = load_model(path, device=device()), load_tokenizer(path)
    started = time.perf_counter()
    engine = vllm_engine(args, policy=policy)
    rows.add("start", True, f"{time.perf_counter() - started:.1f} s, {policy.dtype}, {engine.note or 'tested version'}")
    rows.guard("weights", lambda: hand_over(engine, policy, rows))
    ours = native_engine(policy, tokenizer, max_num_seqs=128, max_model_len=engine.max_model_len)
    for name, temperature in {"greedy": 0.0, "sampled": 1.0}.items():
        asked = requests(args, tokenizer, temperature)
        rows.guard(name, lambda name=name, asked=asked: compare(name, asked, ours, engine, policy, rows))
    ours.end_rollout()
    rows.guard("sleep", lambda: sleep_and_wake(engine, policy, asked, rows))
    rows.guard("stale weights", lambda: refuse_stale(engine, policy, rows))


def hand_over(engine: Any, policy: Any, rows: Rows) -> None:
    started = time.perf_counter()
    metrics = engine.load_weights(policy.state_dict, lambda ids: text_logprobs(policy, ids))
    seconds, difference = time.perf_counter() - started, metrics["rollout/canary_logprob_diff"]
    rows.add("weights", True, f"{seconds:.2f} s, canary {difference:.2g} of at most {engine.canary_bound:g}")


def compare(name: str, asked: list[Request], ours: Engine, engine: Any, policy: Any, rows: Rows) -> None:
    mine, theirs = play(ours, asked), play(engine, asked)
    same, ties, others, distances = 0, 0, 0, []
    for request, one, two in zip(asked, mine, theirs, strict=True):
        pairs = list(zip(one.token_ids, two.token_ids, strict=False))
        shared = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
        distances += [abs(a - b) for a, b in zip(one.logprobs[:shared], two.logprobs[:shared], strict=True)]
        if shared == len(pairs):
            same += 1
        elif name == "greedy" and is_tie(policy, [*request.prompt_ids, *one.token_ids[:shared]], pairs[shared]):
            ties += 1
        else:
            others += 1
    mean = sum(distances) / max(len(distances), 1)
    # Without a common token there is no distance, and nothing was compared.
    is_right = bool(distances) and mean <= engine.canary_bound and (name == "sampled" or others == 0)
    text = f"{same} of {len(asked)} replies equal, {ties} part at a tie, {others} elsewhere; "
    num_tokens = sum(len(one.token_ids) for one in mine)
    most = max(distances, default=0.0)
    text += f"{len(distances)} of {num_tokens} tokens before; log-probs differ by {mean:.2g} (most {most:.2g})"
    rows.add(name, is_right, text)


@torch.no_grad()
def is_tie(policy: Any, ids: list[int], pair: tuple[int, int]) -> bool:
    logits = policy(torch.tensor([ids], device=policy.device)).logits[0, -1].float()
    first, second = torch.log_softmax(logits, dim=-1)[list(pair)].tolist()
    return abs(first - second) < TIE[policy.dtype]


def sleep_and_wake(engine: Any, policy: Any, asked: list[Request], rows: Rows) -> None:
    if not engine.can_sleep:
        rows.add("sleep", True, "a CPU keeps its memory")
        return
    before = [one.token_ids for one in play(engine, asked)]
    free, started = torch.cuda.mem_get_info()[0], time.perf_counter()
    engine.end_rollout()
    asleep, freed = time.perf_counter() - started, torch.cuda.mem_get_info()[0] - free
    started = time.perf_counter()
    metrics = engine.load_weights(policy.state_dict, lambda ids: text_logprobs(policy, ids))
    awake, reported = time.perf_counter() - started, metrics["rollout/sleep_freed_gb"]
    equal = sum(a == b.token_ids for a, b in zip(before, play(engine, asked), strict=True))
    text = f"asleep in {asleep:.2f} s, {freed / 1e9:.1f} GB free again (reported {reported:.1f}); "
    text += f"awake with new weights in {awake:.2f} s, {equal} of {len(asked)} replies as before"
    rows.add("sleep", reported > 0 and equal >= SAME * len(asked), text)


def refuse_stale(engine: Any, policy: Any, rows: Rows) -> None:
    wrong = {name: weight * 1.5 if "mlp" in name else weight for name, weight in policy.state_dict().items()}
    try:
        engine.load_weights(lambda: wrong, lambda ids: text_logprobs(policy, ids))
    except EngineError as error:
        rows.add("wrong weights", True, f"refused: {str(error)[:100]} ...")
    else:
        rows.add("wrong weights", False, "the canary let them pass")


# --- train


def part_train(args: Namespace, rows: Rows) -> None:
    from ragen.tracking.rundir import read_metrics
    from ragen.trainer.build import build_trainer

    changes = [f"model_path={args.model}", f"{ROLLOUT}.name=vllm", f"trainer.default_local_dir={args.folder}/run"]
    changes += ["es_manager.train.env_groups=4", "es_manager.train.group_size=4", "agent_proxy.max_turn=2"]
    changes += [f"{ROLLOUT}.response_length={48 if args.small else 128}", f"{ROLLOUT}.enforce_eager=True"]
    changes += [f"{ROLLOUT}.max_model_len={1024 if args.small else 4096}", "algorithm.adv_estimator=grpo"]
    changes += ["ppo_mini_batch_size=8", "micro_batch_size_per_gpu=8", "trainer.logger=[]", "trainer.preflight=False"]
    changes += ["trainer.total_training_steps=5", "trainer.test_freq=-1", "trainer.save_freq=-1"]
    changes += ["trainer.val_before_train=False", "collapse_detection.compute_freq=0"]
    changes += ["system.CUDA_VISIBLE_DEVICES=''"] if device() == "cpu" else []
    trainer = build_trainer(load_config("_2_sokoban", changes))
    assert trainer is not None
    trainer.fit()
    steps = [row for row in read_metrics(Path(args.folder) / "run") if "rollout/canary_logprob_diff" in row]
    canary = max(row["rollout/canary_logprob_diff"] for row in steps)
    mismatch = max(row["rollout/logprob_mismatch_max"] for row in steps)
    seconds = [row["timing_s/step"] for row in steps]
    text = f"{len(steps)} steps, {seconds[-1]:.1f} s the last; canary at most {canary:.2g}, "
    text += f"log-prob mismatch {mismatch:.2g}"
    if freed := [row["rollout/sleep_freed_gb"] for row in steps if "rollout/sleep_freed_gb" in row]:
        text += f", sleep frees {min(freed):.1f} GB"
    rows.add("train", len(steps) == 5, text)


# --- kill


def part_kill(args: Namespace, rows: Rows) -> None:
    engine = vllm_engine(args, executor="mp", enforce_eager=True)
    asked = requests(args, load_tokenizer(model_folder(args)), 1.0)
    for request in asked:
        engine.submit(request)
    engine.step()
    (process,) = engine.processes
    os.kill(process, signal.SIGKILL)
    try:
        while True:
            engine.step()
    except EngineError as error:
        rows.add("kill", f"process {process} died" in str(error), str(error))
    engine.close()


# --- rollout


def part_rollout(args: Namespace, rows: Rows) -> None:
    from parts.replies import end_replies, recorded_lengths
    from rollout import Setup, play_with_engine

    from ragen.llm_agent.build import build_chat
    from ragen.llm_agent.es_manager import EsManager

    path = model_folder(args)
    policy, tokenizer = load_model(path, device=device()), load_tokenizer(path)
    num_groups, group_size, reply_tokens = (2, 4, 48) if args.small else (8, 16, 400)
    changes = [f"model_path={args.model}", f"es_manager.train.env_groups={num_groups}", "ppo_mini_batch_size=1"]
    changes += [f"es_manager.train.group_size={group_size}", "agent_proxy.max_turn=5"]
    changes += [f"{ROLLOUT}.response_length={reply_tokens}", f"{ROLLOUT}.max_model_len={2048 if args.small else 4096}"]
    config = load_config("_2_sokoban", changes)
    environments, chat = EsManager(config.es_manager.train, config.custom_envs), build_chat(config, tokenizer)
    setup = Setup(
        config=config,
        tokenizer=tokenizer,
        chat=chat,
        model=policy,
        environments=environments,
        reply_tokens=reply_tokens,
    )
    length = config.actor_rollout_ref.rollout.max_model_len
    engine = vllm_engine(args, policy=policy, max_model_len=length, free_cache_engine=False)
    engine.load_weights(policy.state_dict, lambda ids: text_logprobs(policy, ids))
    ours = native_engine(policy, tokenizer, max_num_seqs=128, max_model_len=length)
    for name, one in {"vLLM": engine, type(ours).__name__: ours}.items():
        if args.replies == "real":
            end_replies(one, recorded_lengths())
        for number in (1, 2):
            played = play_with_engine(setup, one)
            one.end_rollout()
            rate = played.num_sampled / played.seconds
            text = f"{played.seconds:.2f} s, {played.num_sampled} tokens, {rate:,.0f} tokens/s"
            rows.add(f"{name}, round {number}", True, text)


PARTS = {"engine": part_engine, "train": part_train, "kill": part_kill, "rollout": part_rollout}


def run_part(part: str, args: Namespace, folder: Path) -> list[list[str]]:
    """The rows of a part that ran in a process of its own, and how it ended where it did not end well."""
    file, started = folder / f"{part}.jsonl", time.perf_counter()
    words = [sys.executable, __file__, "--model", args.model, "--part", part, "--folder", str(folder / part)]
    words += ["--replies", args.replies, *(["--small"] if args.small else [])]
    with (folder / f"{part}.log").open("w") as log:
        process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code: int | str = process.wait(LIMITS[part] * args.patience)
        except subprocess.TimeoutExpired:
            code = "its time limit"
        if process.poll() is None or part == "kill":
            end_session(process)
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    if code != 0:
        tail = " | ".join((folder / f"{part}.log").read_text().splitlines()[-6:])
        rows.append(["(end)", "WRONG", f"ended with {code}: {tail}"])
    rows.append(["(time)", "", f"{time.perf_counter() - started:.0f} s"])
    return [[part, *row] for row in rows]


def end_session(process: subprocess.Popen) -> None:
    """The part and the processes it started, which are in a session of their own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny", help="a model folder, or the name of an embedded model")
    parser.add_argument("--small", action="store_true", help="few and short replies, for a CPU")
    parser.add_argument("--replies", choices=("real", "longest"), default="real", help="lengths in the part rollout")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--patience", type=float, default=1.0, help="multiplies the time limits")
    parser.add_argument("--part", choices=list(PARTS), help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.part:
        PARTS[args.part](args, Rows(Path(f"{args.folder}.jsonl")))
        return
    with tempfile.TemporaryDirectory() as folder:
        table = []
        for part in args.parts:
            table += run_part(part, args, Path(folder))
            print(f"{part}: done", flush=True)
    for part, name, verdict, text in table:
        print(f"{part:8}  {name:20}  {verdict:5}  {text}")
    sys.exit(any(verdict == "WRONG" for _, _, verdict, _ in table))


if __name__ == "__main__":
    main()
