"""Memory of the CPU that this process may still take: what the machine has, and what its limits leave."""

from __future__ import annotations

import resource
from contextlib import suppress
from pathlib import Path

STATUS = Path("/proc/self/status")
CGROUPS, OWN_CGROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
FILES = {
    "": ("memory.max", "memory.current", ("inactive_file", "active_file")),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")),
}
"""Controller, "" in version 2 -> the limit, what is used, and what of that is cache, which makes room."""


def free_host_memory() -> float:
    """Bytes; containers and batch systems often allow less than is free on the machine."""
    return min([machine_memory(), *cgroup_room(), *address_room()])


def machine_memory() -> float:
    """Bytes that the machine has left, whoever may take them."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return 1024.0 * int(line.split()[1])
    raise AssertionError("/proc/meminfo has no MemAvailable")


def given_back(status: Path = STATUS) -> float:
    """Bytes that this process held at its peak and does not hold now.

    After a step these are gradients, activations and caches, which the next one takes again.
    """
    with suppress(OSError, KeyError):  # not every system tells
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        peak, now = (1024.0 * int(lines[name].split()[0]) for name in ("VmHWM", "VmRSS"))
        return max(0.0, peak - now)
    return 0.0


def address_room(status: Path = STATUS) -> list[float]:
    """What `ulimit -v` leaves, which batch systems set, too; empty without it."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return []
    with suppress(OSError, KeyError):
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        return [max(0.0, limit - 1024.0 * int(lines["VmSize"].split()[0]))]
    return []


def cgroup_room(root: Path = CGROUPS, own: Path = OWN_CGROUP) -> list[float]:
    """What each group that this process belongs to leaves; empty without limits."""
    with suppress(OSError):
        entries = [line.split(":", 2) for line in own.read_text().splitlines()]
        groups = [(kind, path) for _, kinds, path in entries for kind in kinds.split(",") if kind in FILES]
        return [room for kind, path in groups for room in _room_along(root / kind, path.strip("/"), FILES[kind])]
    return []


def _room_along(root: Path, path: str, files: tuple[str, str, tuple[str, ...]]) -> list[float]:
    """Of a group and of those above it; inside a container the path may be that of the machine, and the root counts."""
    folder, found = root / path, []
    for group in [folder, *folder.parents]:
        with suppress(OSError, ValueError):
            limit, used = (float((group / name).read_text()) for name in files[:2])  # "max" is no number
            stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            found.append(limit - used + sum(float(stat.get(name, 0)) for name in files[2]))
        if group == root:
            break
    return found
