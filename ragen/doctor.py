"""What this installation has, what it lacks, and what each missing piece would give: `ragen doctor`."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import ragen
from ragen.config.load import CONFIG_DIR
from ragen.errors import install_command
from ragen.models.catalogue import CATALOGUE, fetched_dir
from ragen.tracking.machine import installed_version, memory_gib, query_gpus, usable_cores

DISTRIBUTION = "ragen-agents"
PYTHONS = ((3, 11), (3, 12))
"""The versions that pyproject.toml declares."""
CORE = ("hydra-core", "jinja2", "numpy", "omegaconf", "pyyaml", "rich", "safetensors", "torch", "transformers")
"""Without one of these nothing runs."""


@dataclass(frozen=True, slots=True)
class Extra:
    """A part that can be left out."""

    packages: tuple[str, ...]
    gives: str


EXTRAS = {
    "plot": Extra(("matplotlib",), "figures: learning curves, sweeps, gradient analyses, episodes as pictures"),
    "view": Extra(("sse-starlette", "starlette", "uvicorn"), "ragen view, the live page"),
    "wandb": Extra(("wandb",), "trainer.logger=[console,wandb], the default of base"),
    "tensorboard": Extra(("tensorboard",), "trainer.logger=[console,tensorboard]"),
    "mlflow": Extra(("alembic", "mlflow-skinny", "sqlalchemy"), "trainer.logger=[console,mlflow]"),
    "trackio": Extra(("trackio",), "trainer.logger=[console,trackio]"),
    "ray": Extra(("ray",), "training on several GPUs and machines, parallel sweeps"),
    "vllm": Extra(("vllm",), "actor_rollout_ref.rollout.name=vllm, an engine for large models on GPUs"),
    "lora": Extra(("peft",), "lora.rank: training adapters in place of all weights"),
    "sft": Extra(("pyarrow",), "sft.data_dir: demonstrations as parquet files"),
    "gym": Extra(("gymnasium",), "environments of Gymnasium"),
    "openenv": Extra(("starlette", "uvicorn", "websockets"), "env_type openenv, ragen serve: OpenEnv's protocol"),
    "reasoning-gym": Extra(("reasoning-gym",), "env_type reasoning_gym: generated questions with scorers"),
    "textarena": Extra(("textarena",), "env_type textarena: games for one player"),
    "textworld": Extra(("textworld",), "env_type textworld: generated text adventures"),
    "minigrid": Extra(("gymnasium", "minigrid"), "env_type gymnasium with MiniGrid's and BabyAI's ids"),
    "models": Extra(("gguf",), "ragen models fetch and convert: quantized GGUF files"),
}


@dataclass(kw_only=True, slots=True)
class Piece:
    """One thing that is there, or not."""

    name: str
    versions: dict[str, str | None] = field(default_factory=dict)
    """Package -> installed version; None is not installed."""
    problem: str = ""
    """Why it cannot be used; empty where it can."""
    gives: str = ""
    command: str = ""
    """How to get it."""


@dataclass(kw_only=True, slots=True)
class Report:
    """All that the doctor found."""

    machine: dict[str, str]
    core: list[Piece]
    extras: list[Piece]
    tools: list[Piece]

    @property
    def is_healthy(self) -> bool:
        """The core can run; extras may be missing."""
        return not any(piece.problem for piece in self.core)

    def to_json(self) -> dict[str, Any]:
        return {"is_healthy": self.is_healthy, **asdict(self)}


def examine() -> Report:
    """Look at everything; torch is imported, which takes seconds."""
    core = {name: core_piece(name) for name in CORE}
    torch_facts, torch_problem = look_at_torch()
    if torch_problem and not core["torch"].problem:
        core["torch"].problem, core["torch"].command = torch_problem, "pip install --force-reinstall torch"
    machine, pieces = machine_facts() | torch_facts, [python_piece(), *core.values()]
    return Report(machine=machine, core=pieces, extras=list(map(extra_piece, EXTRAS)), tools=tools())


def declared_ranges() -> dict[str, Any]:
    """Package -> the versions that RAGEN declares, as its installed metadata say; empty where there is none."""
    try:
        from packaging.requirements import Requirement

        lines = importlib.metadata.requires(DISTRIBUTION) or []
    except (ImportError, importlib.metadata.PackageNotFoundError):
        return {}
    found = [Requirement(line) for line in lines]
    return {need.name.lower(): need.specifier for need in found if need.marker is None}


def python_piece() -> Piece:
    version = sys.version_info[:2]
    names = " or ".join(f"{major}.{minor}" for major, minor in PYTHONS)
    problem = "" if version in PYTHONS else f"RAGEN is tested on Python {names}"
    return Piece(
        name="Python",
        versions={"Python": platform.python_version()},
        problem=problem,
        command=f"create an environment with Python {names}" if problem else "",
    )


def core_piece(name: str) -> Piece:
    version, wanted = installed_version(name), declared_ranges().get(name)
    problem = "not installed" if version is None else ""
    if version is not None and wanted is not None and not wanted.contains(version, prereleases=True):
        problem = f"{version} is not within {wanted}"
    command = f"pip install '{name}{wanted or ''}'" if problem else ""
    return Piece(name=name, versions={name: version}, problem=problem, command=command)


def extra_piece(name: str) -> Piece:
    extra = EXTRAS[name]
    versions = {package: installed_version(package) for package in extra.packages}
    missing = [package for package, version in versions.items() if version is None]
    return Piece(
        name=name,
        versions=versions,
        problem=f"{', '.join(missing)} not installed" if missing else "",
        gives=extra.gives,
        command=install_command(name) if missing else "",
    )


def tools() -> list[Piece]:
    """What is no Python package."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "firefox"))), None)
    fetched = [entry.name for entry in CATALOGUE.values() if fetched_dir(entry)]
    return [
        Piece(
            name="browser",
            versions={"browser": browser},
            problem="" if browser else "none found on PATH",
            gives="opens the page of ragen view, here; a browser of another machine does, too (ssh -L)",
            command="" if browser else "install chromium or firefox with the package manager",
        ),
        Piece(
            name="fetched models",
            versions=dict.fromkeys(fetched, "fetched"),
            problem="" if fetched else "none",
            gives="model_path by a name of the catalogue; the embedded models (tiny) need none",
            command="" if fetched else "ragen models",
        ),
    ]


def machine_facts() -> dict[str, str]:
    disk = shutil.disk_usage(Path.cwd())
    threads = os.environ.get("OMP_NUM_THREADS")
    return {
        "ragen": f"{ragen.__version__} in {Path(ragen.__file__).parent}",
        "configurations": str(CONFIG_DIR),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processors": f"{usable_cores()} usable of {os.cpu_count()}",
        "memory": f"{memory_gib()} GiB",
        "free disk here": f"{disk.free / 2**30:.0f} GiB",
        "OMP_NUM_THREADS": threads or "not set: torch takes every core",
        "model hub": "offline (HF_HUB_OFFLINE)" if os.environ.get("HF_HUB_OFFLINE") == "1" else "asked where needed",
    }


def look_at_torch() -> tuple[dict[str, str], str]:
    """Facts of torch and of the GPUs it sees, and why it cannot be imported; empty where it can."""
    listed = [f"{name}, {memory} MiB" for name, memory in query_gpus("name,memory.total")]
    facts = {"GPU": "; ".join(listed) or "none"}
    if importlib.util.find_spec("torch") is None:
        return facts, ""
    try:
        import torch

        num_threads = torch.get_num_threads()
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        seen = [torch.cuda.get_device_name(index) for index in range(count)]
    except Exception as error:  # a broken library raises what it likes
        return facts, f"cannot be imported: {' '.join(str(error).split())[:300]}"
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    return {"torch threads": str(num_threads), "torch build": build, "GPU": gpu_fact(seen, listed, build)}, ""


def gpu_fact(seen: list[str], listed: list[str], build: str) -> str:
    if seen:
        return "; ".join(listed or seen)
    if listed:
        return f"{'; '.join(listed)}, but torch ({build}) sees none: install a build of torch for its driver"
    return "none: runs use the CPU"


# --- as text


def to_text(report: Report) -> str:
    width = max(map(len, [*report.machine, *(p.name for p in report.core + report.extras + report.tools)]))
    lines = [f"{name:<{width}}  {value}" for name, value in report.machine.items()]
    for title, pieces in (("core", report.core), ("extras", report.extras), ("tools", report.tools)):
        lines += ["", f"{title}:"]
        for piece in pieces:
            lines += piece_lines(piece, width)
    missing = [piece.name for piece in report.core if piece.problem]
    lines += ["", f"The core cannot run: {', '.join(missing)}." if missing else "The core is whole."]
    return "\n".join(lines)


def piece_lines(piece: Piece, width: int) -> list[str]:
    if not piece.problem:
        versions = (name if version == "fetched" else f"{name} {version}" for name, version in piece.versions.items())
        return [f"  ok {piece.name:<{width}}  {piece.versions.get(piece.name) or ', '.join(versions)}"]
    gives = f"  ({piece.gives})" if piece.gives else ""
    return [f"  -- {piece.name:<{width}}  {piece.problem}{gives}", f"     {'':<{width}}  Run: {piece.command}"]
