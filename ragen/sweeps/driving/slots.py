"""Where runs go: groups of GPUs, or the CPU."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ragen.errors import ConfigError
from ragen.tracking.machine import query_gpus

FALLBACK = tuple(str(gpu) for gpu in range(8))
"""The GPUs that are assumed when there are some and nvidia-smi does not say which."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Slot:
    """Room for one run at a time."""

    devices: str
    """GPU ids as CUDA_VISIBLE_DEVICES wants them; empty on a CPU."""
    size: int
    label: str
    """Number and model of the GPUs, as in 4xH100."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """The GPUs that a sweep may use."""

    gpus: tuple[str, ...]
    """Their ids; empty on a machine without any."""
    models: dict[str, str]
    """Id -> short model name, as far as nvidia-smi knows it."""
    is_cpu: bool


def find_machine(wanted: Sequence[str] | None) -> Machine:
    """The GPUs that were asked for, or all there are; prints how they were found where that is not plain.

    An explicit list makes slots on a CPU, too.
    """
    models = ask_nvidia_smi()
    is_cpu = not models and not has_cuda()
    gpus, note = tuple(wanted or models), ""
    # A batch system says in this variable which GPUs are ours; nvidia-smi lists those of others, too.
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is not None:
        note = f"No CUDA device: the slots {', '.join(wanted)} share the CPU." if is_cpu else ""
    elif is_cpu:
        note = "No CUDA device: runs use the CPU."
    elif visible is not None:
        gpus, note = split_list(visible), f"GPUs of CUDA_VISIBLE_DEVICES: {visible}"
        if gpus in ((), ("-1",)):
            gpus, is_cpu = (), True
            note = "CUDA_VISIBLE_DEVICES names no GPU: runs use the CPU."
    elif not models:
        gpus = FALLBACK
        note = f"warning: nvidia-smi lists no GPUs, so {','.join(FALLBACK)} are assumed. Name them with --gpus."
    if note:
        print(note)
    return Machine(gpus=gpus, models=models, is_cpu=is_cpu)


def cut_slots(machine: Machine, gpus_per_run: int, runs_per_gpu: int = 1) -> list[Slot]:
    """Consecutive groups of GPUs: 0,1,2,3 by 2 -> 0,1 and 2,3.

    So many runs share each slot: 0 and 1 by 2 -> 0, 1, 0, 1, so that all GPUs are taken before one is shared.
    """
    count = len(machine.gpus) or 1  # the CPU counts as one
    if gpus_per_run > count:
        what = (
            f"there are {count}: {','.join(machine.gpus)}" if machine.gpus else "there is none, and a CPU is one slot"
        )
        raise ConfigError(f"--gpus-per-exp is {gpus_per_run}, but {what}. Lower it, or name more GPUs with --gpus.")
    if count % gpus_per_run:
        raise ConfigError(
            f"--gpus-per-exp is {gpus_per_run}, which does not divide the {count} GPUs {','.join(machine.gpus)}. "
            "Choose a divisor, or name other GPUs with --gpus."
        )
    if not machine.gpus:
        return [Slot(devices="", size=1, label="1xCPU")] * runs_per_gpu
    groups = [machine.gpus[i : i + gpus_per_run] for i in range(0, count, gpus_per_run)]
    for group in groups:
        if len(set(group)) < len(group):
            raise ConfigError(f"--gpus: one run would get the same GPU twice ({','.join(group)}). Name each once.")
    slots = [Slot(devices=",".join(group), size=len(group), label=slot_label(group, machine)) for group in groups]
    return slots * runs_per_gpu


def slot_label(group: Sequence[str], machine: Machine) -> str:
    """Four H100 -> 4xH100; different models -> 4xmixed; a model that nobody knows -> 1xGPU3."""
    names = {"CPU" if machine.is_cpu else machine.models.get(gpu) or f"GPU{gpu}" for gpu in group}
    return f"{len(group)}x{names.pop() if len(names) == 1 else 'mixed'}"


def ask_nvidia_smi() -> dict[str, str]:
    """Id -> short model name of every GPU; empty when nvidia-smi is missing or fails."""
    return {row[0]: short_model(row[1]) for row in query_gpus("index,name") if len(row) > 1 and row[0].isdigit()}


def short_model(name: str) -> str:
    """NVIDIA H100 80GB HBM3 -> H100, NVIDIA A100-SXM4-80GB -> A100, NVIDIA GeForce RTX 4090 -> RTX4090."""
    words = re.split(r"[\s-]+", name.strip())
    for index, word in enumerate(words):
        if any(letter.isdigit() for letter in word):
            return words[index - 1] + word if word.isdigit() and index else word
    return ""


def has_cuda() -> bool:
    """Whether the CUDA driver sees a device. Asked directly, because importing torch takes seconds."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def split_list(text: str) -> tuple[str, ...]:
    """The items of a comma list; spaces do not count: "0, 0.01" -> ("0", "0.01")."""
    return tuple(item for part in text.split(",") if (item := "".join(part.split())))


def thread_settings(slots: Sequence[Slot]) -> dict[str, str]:
    """Threads for each process of several runs: more threads than cores slow all of them down many times.

    Two slots of 4 GPUs on 32 cores -> 4 threads: a run has a process for each of its GPUs.
    """
    if len(slots) < 2:
        return {}
    threads = max(1, (os.cpu_count() or 1) // sum(slot.size for slot in slots))
    settings = {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"}
    return {name: value for name, value in settings.items() if name not in os.environ}
