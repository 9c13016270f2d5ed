"""Workers in many processes, one for each GPU (or CPU slot), placed by Ray; workers/rank.py is what each of them does.

The driver calls all ranks at once (workers/ray.py says with what). It also keeps the store through which the
ranks find each other and in which each of them notes what it is doing: a rank that is stuck still can be read about.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import PrefixStore, TCPStore

from ragen.config.schema import Config
from ragen.config.trainer import how_to_resume
from ragen.distributed.watch import IDLE, Watch, notes
from ragen.errors import ConfigError, RagenError, WorkerError, needing_extra
from ragen.learners.batch import Batch

with needing_extra("ray", "Training on several devices needs Ray"):
    import ray
    from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

START_S = 300.0
"""Longest time until Ray has placed all processes and they answer."""
GRACE_S = 3.0
"""After a rank failed, the others get this long to report: one of them may be the cause."""
HEAD_GONE_S = 20.0
"""So long may the head of the cluster be out of reach. After 60 s Ray itself would end this process without a word."""


class RankProcess:
    """What runs in the process of a rank. Ray calls one method at a time."""

    def __init__(self) -> None:
        self._workers: Any = None
        self._note: Callable[[str | None], None] = lambda phase: None

    def where(self) -> tuple[str, int]:
        """Address of the machine, and process id."""
        return ray.util.get_node_ip_address(), os.getpid()

    def build(
        self, builder: Callable[[Any], Any], config: Config, *, number: int, device: str, store: tuple[str, int, str]
    ) -> None:
        """Join the others and build this rank's workers. `store`: host, port, and the name of the run in it."""
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh

        from ragen.distributed.team import Rank

        host, port, run = store
        shared = PrefixStore(run, TCPStore(host, port, is_master=False, timeout=timedelta(seconds=START_S)))
        self._note = notes(shared, number)
        self._note("start")
        if device == "cuda":
            torch.cuda.set_device(0)  # Ray shows each process its own GPU only
        if dist.is_initialized():
            dist.destroy_process_group()
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo",
            store=shared,
            rank=number,
            world_size=config.num_ranks,
            timeout=timedelta(minutes=max(30.0, 2 * config.trainer.hang_timeout_minutes)),
        )
        rank = Rank(
            number=number,
            world_size=config.num_ranks,
            mesh=init_device_mesh(device, (config.num_ranks,)),
            dtype=torch.bfloat16 if device == "cuda" else torch.float32,
            is_balanced=config.trainer.balance_batch,
            on_progress=lambda: self._note(None),
        )
        self._workers = builder(rank)

    def call(self, method: str, is_answered: bool, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the workers. Where all ranks have the same answer, only one of them gives it."""
        self._note(method)
        answer = getattr(self._workers, method)(*args, **kwargs)
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()  # whoever asked measures what has been done
        self._note(IDLE)
        return answer if is_answered else None

    def release(self) -> None:
        """Drop the workers; the process may build others."""
        import torch.distributed as dist

        if self._workers is not None:
            self._workers.close()
        self._workers, self._note = None, lambda phase: None
        if dist.is_initialized():
            dist.destroy_process_group()


class Ranks:
    """Processes of a Ray cluster: one for each GPU, or for each CPU slot where there are no GPUs."""

    def __init__(self, config: Config, *, device: str) -> None:
        trainer, ray_init = config.trainer, config.ray_kwargs.ray_init
        self.device, size = device, config.num_ranks
        self._is_own = not ray.is_initialized()
        self._on_sigterm = signal.getsignal(signal.SIGTERM)  # Ray sets one of its own, and leaves it
        if self._is_own:
            _start_ray(ray_init.address, ray_init.num_cpus, num_ranks=size, device=device)
        try:
            self._place(trainer.n_gpus_per_node, trainer.nnodes)
        except BaseException:
            self.close()
            raise

    def _place(self, per_node: int, num_nodes: int) -> None:
        kind = "GPU" if self.device == "cuda" else "CPU"
        bundle = {"CPU": float(per_node)} | ({"GPU": float(per_node)} if kind == "GPU" else {})
        self.actors: list[Any] = []
        machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if sum(machine.get(kind, 0) >= per_node for machine in machines) < num_nodes:
            listed = ", ".join(f"{machine.get(kind, 0):g}" for machine in machines)
            raise ConfigError(
                f"trainer.nnodes={num_nodes} x trainer.n_gpus_per_node={per_node}: the Ray cluster has {len(machines)} "
                f"machines with {listed} {kind}s. Lower the numbers, or see `ray status`."
            )
        self._group = placement_group(
            [bundle] * num_nodes, strategy="STRICT_SPREAD" if num_nodes > 1 else "STRICT_PACK"
        )
        remote = ray.remote(max_restarts=0, max_task_retries=0)(RankProcess)
        try:
            ray.get(self._group.ready(), timeout=START_S)
        except GetTimeoutError as error:
            raise RagenError(
                f"trainer.nnodes={num_nodes} x trainer.n_gpus_per_node={per_node}: not so many {kind}s of the Ray "
                f"cluster were free within {START_S:.0f} s. See `ray status` for what uses them."
            ) from error
        threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, (os.cpu_count() or 1) // per_node))
        self.actors = [
            remote.options(
                num_cpus=1,
                num_gpus=1 if kind == "GPU" else 0,
                runtime_env={"env_vars": {"OMP_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": "false"}},
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    self._group, placement_group_bundle_index=number // per_node
                ),
            ).remote()
            for number in range(per_node * num_nodes)
        ]
        try:
            self.processes = ray.get([actor.where.remote() for actor in self.actors], timeout=START_S)
        except (GetTimeoutError, RayActorError) as error:
            raise WorkerError(f"The workers did not start within {START_S:.0f} s: {error}") from error

    def where(self, count: int) -> str:
        """Processes of the first ranks, by machine: 10.0.0.1 (4711, 4712), 10.0.0.2 (815)"""
        pids: dict[str, list[str]] = {}
        for address, pid in self.processes[:count]:
            pids.setdefault(address, []).append(str(pid))
        return ", ".join(f"{address} ({', '.join(found)})" for address, found in pids.items())

    def close(self) -> None:
        """End all processes, and Ray if it was started here."""
        here = ray.util.get_node_ip_address() if ray.is_initialized() else ""
        for actor in getattr(self, "actors", []):
            with suppress(Exception):  # Ray itself may be gone
                ray.kill(actor)
        for address, pid in getattr(self, "processes", []):
            if address == here:  # a process that hangs does not answer Ray
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        self.actors, self.processes = [], []
        with suppress(Exception):
            remove_placement_group(self._group)
        if self._is_own:
            ray.shutdown()
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, self._on_sigterm)


def _start_ray(address: str | None, num_cpus: int | None, *, num_ranks: int, device: str) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # What Ray will do by itself some day, and warns of until then.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    resources: dict[str, Any] = {}
    if address is None:
        if num_cpus is not None and num_cpus < num_ranks:
            raise ConfigError(
                f"ray_kwargs.ray_init.num_cpus is {num_cpus}, but {num_ranks} workers need one each. Raise it, or "
                "leave it out."
            )
        count = max(num_ranks, os.cpu_count() or 1) if num_cpus is None else num_cpus
        resources = {"num_cpus": count, "include_dashboard": False} | ({} if device == "cuda" else {"num_gpus": 0})
    try:
        ray.init(address=address or "local", logging_level=logging.ERROR, **resources)
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        secret = " If the cluster has a secret: export RAY_AUTH_MODE=token (docs/multi_gpu.md)." if address else ""
        raise RagenError(f"ray_kwargs.ray_init.address={address}: Ray does not start: {reason}.{secret}") from error


class Head:
    """The process that keeps a Ray cluster together (its GCS), seen from here."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._reached = self._tried = time.monotonic()

    def is_gone(self, now: float) -> bool:
        """Whether it has not accepted a connection for HEAD_GONE_S; it is tried at most once a second."""
        if now - self._tried >= 1.0:
            self._tried = now
            with suppress(OSError), socket.create_connection((self._host, self._port), timeout=5.0):
                self._reached = now
        return self._tried - self._reached > HEAD_GONE_S


class RankCalls:
    """Workers of the same kind on all ranks, called at once and watched meanwhile."""

    def __init__(
        self,
        config: Config,
        builder: Callable[[Any], Any],
        ranks: Ranks | None,
        *,
        device: str,
        memory_advice: str,
    ) -> None:
        """`builder` makes the workers of a rank, in its process. Given `ranks` outlive this; None starts some."""
        trainer = config.trainer
        self._memory_advice, self._owns_ranks = memory_advice, ranks is None
        self._resume = f"{how_to_resume(trainer.resume_mode)}; trainer.max_restarts=N lets a run do so by itself."
        self.config, self.ranks = config, ranks or Ranks(config, device=device)
        self.world_size = config.num_ranks
        self.actors = self.ranks.actors[: self.world_size]
        self._is_broken = False
        self._head = Head(ray.get_runtime_context().gcs_address)
        host = ray.util.get_node_ip_address()
        self._server = TCPStore(host, 0, is_master=True, wait_for_workers=False)
        store = (host, self._server.port, f"run {os.getpid()} {time.monotonic_ns()}")
        self._store = PrefixStore(store[2], self._server)
        self._warn_s, self._stop_s = 60 * trainer.watchdog_minutes, 60 * trainer.hang_timeout_minutes
        built = [
            actor.build.remote(builder, config, number=number, device=self.ranks.device, store=store)
            for number, actor in enumerate(self.actors)
        ]
        try:
            self.wait("start", built)
        except BaseException:
            if self._owns_ranks:
                self.ranks.close()
            raise
        print(f"Workers: {self.world_size} on {device}, {self.ranks.where(self.world_size)}", flush=True)

    def close(self) -> None:
        if self._owns_ranks:
            self.ranks.close()
        elif not self._is_broken:
            ray.get([actor.release.remote() for actor in self.actors], timeout=60)

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call all ranks with the same arguments; they have the same answer."""
        shared = [ray.put(arg) if isinstance(arg, Batch | list) else arg for arg in args]
        calls = [actor.call.remote(method, number == 0, *shared, **kwargs) for number, actor in enumerate(self.actors)]
        return self.wait(method, calls)[0]

    def wait(self, phase: str, calls: Sequence[Any]) -> list[Any]:
        """The answers of all ranks; a WorkerError when one died or failed, or when nothing moves any more."""
        number_of = {call: number for number, call in enumerate(calls)}
        answers: dict[int, Any] = {}
        failures: dict[int, Exception] = {}
        waiting, now = list(calls), time.monotonic()
        watch = Watch(len(calls), now)
        warned = failed = None
        while waiting:
            done, waiting = ray.wait(waiting, timeout=1.0)
            now = time.monotonic()
            if self._head.is_gone(now):
                self._is_broken = True
                raise WorkerError(
                    f"The Ray cluster is gone: its head {self._head.address} does not answer during {phase}. Start the "
                    f"cluster again, where it is not this run's own. {self._resume}"
                )
            for call in done:
                try:
                    answers[number_of[call]] = ray.get(call)
                except RayError as error:
                    failures[number_of[call]] = error
                    failed = failed or now
            if failed is not None and (now - failed > GRACE_S or not waiting):
                self._fail(phase, failures)
            watch.read(self._store, now)
            still = now - max(watch.moved)
            if still > self._stop_s:
                self._is_broken = True
                raise WorkerError(
                    f"Nothing moved for {still:.0f} s during {phase} (trainer.hang_timeout_minutes):\n"
                    f"{watch.describe_waiting(now)}\nThe workers are ended. {self._resume}"
                )
            if still > self._warn_s and (warned is None or now - warned > self._warn_s):
                warned = now
                print(
                    f"Nothing moved for {still:.0f} s during {phase}:\n{watch.describe_waiting(now)}",
                    file=sys.stderr,
                    flush=True,
                )
        return [answers[number] for number in range(len(calls))]

    def _fail(self, phase: str, failures: Mapping[int, Exception]) -> None:
        """Raise what the likeliest cause among the failures deserves: ranks that lost their peer are not the cause."""
        self._is_broken = True

        def is_effect(number: int) -> tuple[bool, bool]:
            error = failures[number]
            is_lost = any(word in str(error) for word in ("Connection", "gloo", "NCCL", "DistBackendError"))
            return isinstance(error, RayTaskError), is_lost and isinstance(error, RayTaskError)

        number = min(failures, key=lambda number: (*is_effect(number), number))
        error = failures[number]
        address, pid = self.ranks.processes[number]
        name = f"Worker {number} of {self.world_size} (process {pid} on {address})"
        if isinstance(error, RayActorError):
            raise WorkerError(
                f"{name} died during {phase}: it was killed, or its machine ran out of memory (see `dmesg`). "
                f"{self._resume}"
            ) from error
        cause = getattr(error, "cause", error)
        if isinstance(cause, RagenError):
            raise cause
        print(error, file=sys.stderr, flush=True)
        reason = f"{type(cause).__name__}: {str(cause).strip().splitlines()[0] if str(cause).strip() else ''}"
        if isinstance(cause, MemoryError | torch.OutOfMemoryError) or "allocate" in str(cause):
            raise WorkerError(f"{name} ran out of memory during {phase} ({reason}). {self._memory_advice}") from error
        raise WorkerError(f"{name} failed during {phase}: {reason}. {self._resume}") from error


def on_all_ranks(method: str) -> Any:
    """A method of the workers for a subclass of `RankCalls`: called on all ranks, which have the same answer."""
    return lambda self, *args, **kwargs: self.call(method, *args, **kwargs)
