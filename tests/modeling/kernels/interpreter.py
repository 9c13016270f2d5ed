"""Kernels on a GPU, or run by Triton's interpreter; tests of kernels import this before them."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest
import torch
from torch import Tensor

if not torch.cuda.is_available():
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("the interpreter must be chosen before Triton is imported", allow_module_level=True)
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton")
if not torch.cuda.is_available() and np.lib.NumpyVersion(np.__version__) >= "2.4.0":
    pytest.skip("Triton 3.6's interpreter does not know NumPy 2.4", allow_module_level=True)

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MARKS = [pytest.mark.gpu] if DEVICE == "cuda" else []
CPU_ONLY = pytest.mark.skipif(DEVICE == "cuda", reason="tests/gpu/test_engine_cuda.py does that on a GPU")


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(DEVICE).requires_grad_()


def assert_same(ours: Tensor, theirs: Tensor, inputs: tuple[Tensor, ...]) -> None:
    """Values and gradients, the latter for random weights of the outputs."""
    torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=2e-5)
    weights = normal(*ours.shape, seed=9).detach()
    for mine, other in zip(
        torch.autograd.grad((ours * weights).sum(), inputs), torch.autograd.grad((theirs * weights).sum(), inputs)
    ):
        torch.testing.assert_close(mine, other, atol=5e-5, rtol=5e-5)
