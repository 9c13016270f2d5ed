"""What every test shares: one thread per process, no network, no screen, Ctrl-C as on a terminal."""

import os
import signal

# Before torch is imported: OpenMP reads its variables once. Several busy processes on a few cores, each with a
# thread per core, are up to 50 times slower than with one thread each.
for name, value in {
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
    "GOMP_SPINCOUNT": "1000",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "WANDB_MODE": "offline",
    "MPLBACKEND": "Agg",
}.items():
    os.environ.setdefault(name, value)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as of every job in the background of a script
    signal.signal(signal.SIGINT, signal.default_int_handler)

from collections.abc import Iterator  # noqa: E402
from contextlib import suppress  # noqa: E402

import pytest  # noqa: E402

from tests.processes import end_started  # noqa: E402

with suppress(ImportError):  # the GPU machine has pytest alone
    from hypothesis import settings

    # A shared machine stalls now and then, so an example's duration says nothing about the code.
    settings.register_profile("ragen", deadline=None)
    settings.load_profile("ragen")


@pytest.fixture(autouse=True)
def nothing_left_running() -> Iterator[None]:
    """A test that fails leaves no process behind."""
    yield
    end_started()


@pytest.fixture(autouse=True)
def devices_of_the_machine() -> Iterator[None]:
    """A training in this process names its GPUs in the environment, where those of the next test would see them."""
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    yield
    if before is None:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = before
