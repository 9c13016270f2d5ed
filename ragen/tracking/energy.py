"""What GPUs have drawn, by the counter that each keeps since its driver was loaded (NVML, Volta and later).

    before = read_counters(["GPU-8932f937-..."])
    ...
    joules(before, read_counters(["GPU-8932f937-..."]))

The counter is that of the whole card, whoever uses it. NVML comes with the driver, so nothing has to be installed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

LIBRARY = "libnvidia-ml.so.1"
REASONS = {3: "this GPU has no energy counter", 4: "no permission to read it", 6: "NVML does not know this GPU"}
"""NVML's return codes that a user may meet."""

Counters = Mapping[str, int]
"""UUID of a GPU -> millijoules."""


class NotMeasured(Exception):
    """Why there is no number."""


def read_counters(uuids: Sequence[str], *, library: str = LIBRARY) -> dict[str, int]:
    """The counters of some GPUs; all or none."""
    if not uuids:
        raise NotMeasured("no GPU was used")
    try:
        nvml = ctypes.CDLL(library)
        _check(nvml.nvmlInit_v2())
        try:
            return {uuid: _read_counter(nvml, uuid) for uuid in uuids}
        finally:
            nvml.nvmlShutdown()
    except (OSError, AttributeError) as error:  # no driver, or one that is older than the counter
        raise NotMeasured(f"the driver does not tell it ({error})") from error


def _read_counter(nvml: ctypes.CDLL, uuid: str) -> int:
    device, energy = ctypes.c_void_p(), ctypes.c_ulonglong()
    _check(nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(device)))
    _check(nvml.nvmlDeviceGetTotalEnergyConsumption(device, ctypes.byref(energy)))
    return energy.value


def _check(code: int) -> None:
    if code:
        raise NotMeasured(REASONS.get(code, f"NVML answers {code}"))


def joules(before: Counters, after: Counters) -> float:
    """What was drawn in between: {"GPU-a": 1000}, {"GPU-a": 4500} -> 3.5"""
    differences = [after[uuid] - before[uuid] for uuid in before]
    if any(difference < 0 for difference in differences):
        raise NotMeasured("a counter began anew: the driver was loaded again")
    return sum(differences) / 1000
