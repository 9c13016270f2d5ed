"""What a run ran on and with: processor, memory, GPUs; versions, and the commit of a checkout."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ragen
from ragen.engine.registry import ENGINES

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""In the environment, CUDA reads it once; in the configuration, the key of `system` that becomes it."""
PROCESSOR = re.compile(r"^model name\s*:\s*(.+)$", re.MULTILINE)
CPU_INFO = Path("/proc/cpuinfo")


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One of this machine."""

    name: str
    uuid: str
    """GPU-...; empty where only CUDA knows it."""


def query_gpus(fields: str) -> list[list[str]]:
    """[GPUs, fields] What nvidia-smi says; empty when it is missing or fails."""
    answer = _output("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits") or ""
    return [[field.strip() for field in line.split(",")] for line in answer.splitlines()]


def used_gpus(device: str, count: int) -> list[Gpu]:
    """The first `count` that CUDA sees, as it is told by its variable; none on the CPU.

    A name that nvidia-smi does not list, such as that of a slice (MIG-...), stands for itself.
    """
    if not device.startswith("cuda"):
        return []
    rows = [row for row in query_gpus("index,uuid,name") if len(row) == 3]
    visible = os.environ.get(VISIBLE)
    asked = [name.strip() for name in visible.split(",")] if visible else [index for index, _, _ in rows]
    return [_find_gpu(name, rows) for name in asked[:count]]


def _find_gpu(asked: str, rows: Sequence[Sequence[str]]) -> Gpu:
    """By its number, or by the start of its UUID, as CUDA takes it."""
    for index, uuid, name in rows:
        if asked == index or (asked.startswith("GPU-") and uuid.startswith(asked)):
            return Gpu(name=name, uuid=uuid)
    return Gpu(name=asked, uuid="")


def machine_facts(gpus: Sequence[Gpu]) -> dict[str, Any]:
    """This machine, as far as it bears on speed."""
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": processor_name(),
        "usable_cores": usable_cores(),
        "cores": os.cpu_count(),
        "memory_gib": memory_gib(),
        "gpus": [gpu.name for gpu in gpus],
    }


def processor_name() -> str:
    """AMD EPYC 7763 64-Core Processor; the architecture where nothing says more."""
    try:
        found = PROCESSOR.search(CPU_INFO.read_text())
    except (OSError, UnicodeDecodeError):
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()


def usable_cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_gib() -> int:
    return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30)


def installed_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def version_facts(engine: str) -> dict[str, str | None]:
    """Of all that computes the numbers of a run; None is not installed, or no checkout."""
    package = ENGINES[engine].package
    return {
        "ragen": ragen.__version__,
        "commit": commit_of(Path(ragen.__file__).parents[1]),
        "python": platform.python_version(),
        "torch": installed_version("torch"),
        "transformers": installed_version("transformers"),
        "engine": f"{engine} {installed_version(package)}" if package else engine,
    }


def commit_of(folder: Path) -> str | None:
    """The commit that is checked out in a folder, and whether files differ from it; None where it is no checkout.

    An installed package may lie somewhere inside another project's checkout, whose commit says nothing of it.
    """
    top = _git(folder, "rev-parse", "--show-toplevel")
    if top is None or Path(top) != folder.resolve():
        return None
    commit, changed = _git(folder, "rev-parse", "HEAD"), _git(folder, "status", "--porcelain", "--untracked-files=no")
    return f"{commit} with changes" if commit and changed else commit


def _git(folder: Path, *arguments: str) -> str | None:
    # Others may be at work in the checkout: it is not locked.
    return _output("git", "-C", str(folder), *arguments, GIT_OPTIONAL_LOCKS="0")


def _output(*command: str, **environment: str) -> str | None:
    """What a program says; None when it is missing or fails."""
    variables = os.environ | environment
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True, env=variables)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
