"""The energy counters of GPUs, read from a library that answers as the driver's does."""

import shutil
import subprocess

import pytest

from ragen.tracking.energy import NotMeasured, joules, read_counters

SOURCE = """
#include <string.h>
int nvmlInit_v2(void) { return INIT; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    static char first, second;
    if (!strcmp(uuid, "GPU-a")) { *device = &first; return 0; }
    if (!strcmp(uuid, "GPU-b")) { *device = &second; return 0; }
    return 6;
}
#ifdef COUNTER
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *energy) {
    static void *first;
    if (!first) first = device;
    *energy = device == first ? 5000000000ULL : 7ULL;
    return COUNTER;
}
#endif
"""


def build(folder, *, init: int = 0, counter: int | None = 0) -> str:
    """A library with NVML's functions."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    source, library = folder / "nvml.c", folder / "libnvml.so"
    source.write_text(SOURCE)
    given = [f"-DINIT={init}", *([] if counter is None else [f"-DCOUNTER={counter}"])]
    subprocess.run(["cc", "-shared", "-fPIC", *given, "-o", str(library), str(source)], check=True)
    return str(library)


def test_the_counter_of_each_gpu_is_read(tmp_path):
    assert read_counters(["GPU-a", "GPU-b"], library=build(tmp_path)) == {"GPU-a": 5_000_000_000, "GPU-b": 7}


@pytest.mark.parametrize(
    ("library", "uuid", "reason"),
    [
        ({"init": 9}, "GPU-a", "NVML answers 9"),
        ({"counter": 3}, "GPU-a", "this GPU has no energy counter"),
        ({"counter": None}, "GPU-a", "the driver does not tell it .*nvmlDeviceGetTotalEnergyConsumption"),
        ({}, "GPU-c", "NVML does not know this GPU"),
    ],
)
def test_what_cannot_be_measured_says_why(tmp_path, library, uuid, reason):
    with pytest.raises(NotMeasured, match=reason):
        read_counters([uuid], library=build(tmp_path, **library))


def test_without_a_driver_or_a_gpu_nothing_is_measured(tmp_path):
    with pytest.raises(NotMeasured, match="the driver does not tell it"):
        read_counters(["GPU-a"], library=str(tmp_path / "none.so"))
    with pytest.raises(NotMeasured, match="no GPU was used"):
        read_counters([])


def test_what_was_drawn_is_the_difference_of_all_counters():
    assert joules({"GPU-a": 1000, "GPU-b": 0}, {"GPU-a": 4500, "GPU-b": 500}) == 4.0
    with pytest.raises(NotMeasured, match="began anew"):
        joules({"GPU-a": 1000}, {"GPU-a": 10})
