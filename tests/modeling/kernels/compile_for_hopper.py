"""Compile every kernel for Hopper, which needs no GPU, and print what each takes.

`python -m tests.modeling.kernels.compile_for_hopper` prints a JSON object: kernel -> a list of [registers a thread,
bytes of local memory a thread], one for each shape. Nothing runs; tensors are on the CPU.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from ragen.modeling import kernels
from ragen.modeling.kernels import activation, attention, embedding, head, norm, rotary, sampling, session, verify

HEADS, KV_HEADS, DIM = 14, 2, 64
"""Of Qwen2.5-0.5B."""


class Hopper:
    """A driver of a card that is not there."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0


def launch_everything() -> None:
    """Each wrapper once for each way it launches its kernels."""
    bf16 = torch.bfloat16
    for has_norm in (False, True):
        for rows in (1, 32, 64, 256):  # 32, 8, 4 parts and one
            launch_attention(rows, bf16, has_norm=has_norm)
    slots, state = torch.zeros(8, dtype=torch.int64), torch.zeros(8, session.HEADER, dtype=torch.int64)
    out = torch.zeros(3, 8, dtype=torch.int32)
    for width in (1, 8):
        logits = torch.zeros(8, 151_936, dtype=bf16)
        sampling.draw(logits, slots, state, out, chunk=4096, advance=width == 1, width=width)
    verify.accept(slots, slots, state, torch.zeros(4, 8, dtype=torch.int32), width=8)
    embedding.embed_last(slots, state, torch.zeros(100, 896, dtype=bf16))
    attention.copy_pages(torch.zeros(2, 2, dtype=torch.int64), 4096)
    for rows in (8, 64, 128, 2048):
        activation.gated_product(torch.zeros(rows, 128, dtype=bf16), torch.zeros(2 * 160, 128, dtype=bf16))
    x = torch.zeros(64, 896, dtype=bf16, requires_grad=True)
    gain = torch.ones(896, dtype=bf16, requires_grad=True)
    norm.rms_norm_rows(x.detach(), gain.detach(), 1e-6)
    norm.rms_norm(x, gain, 1e-6).sum().backward()
    activation.silu_mul(x, x).sum().backward()
    angles = torch.zeros(64, DIM, dtype=bf16)
    rotary.rotate(torch.zeros(64, HEADS, DIM, dtype=bf16, requires_grad=True), angles, angles).sum().backward()
    targets = torch.zeros(64, dtype=torch.int64)
    head.head_logprobs(x, torch.zeros(5000, 896, dtype=bf16), targets, temperature=1.0, chunk_size=32)[
        0
    ].sum().backward()


def launch_attention(rows: int, dtype: torch.dtype, *, has_norm: bool) -> None:
    angles = torch.zeros(2048, DIM // 2, dtype=dtype)
    gains = (torch.ones(DIM, dtype=dtype), torch.ones(DIM, dtype=dtype)) if has_norm else None
    paged = attention.PagedAttention(
        num_heads=HEADS, num_kv_heads=KV_HEADS, head_dim=DIM, scale=1.0, eps=1e-6, cos=angles, sin=angles, max_rows=rows
    )
    state = torch.zeros(rows, session.HEADER + 32, dtype=torch.int64)
    qkv = torch.zeros(8 * rows, (HEADS + 2 * KV_HEADS) * DIM, dtype=dtype)
    paged.decode(0, qkv[:rows], gains, torch.arange(rows), state)
    paged.prefill(0, qkv, gains, torch.zeros(3 * rows, dtype=torch.int64), state)
    if rows <= 32:
        width = 8 if rows < 32 else 4
        check = verify.VerifyAttention(paged, sessions=rows, width=width)
        check(0, qkv[: rows * width], gains, torch.zeros(3 * rows, dtype=torch.int64), state)


def compiled_kernels() -> dict[str, list[Any]]:
    """Kernel -> its compiled forms. Kernels that are only called by others are part of those."""
    found: dict[str, list[Any]] = {}
    run = JITFunction.run

    def compile_only(self: Any, *args: Any, **options: Any) -> Any:
        kernel = run(self, *args, **options | {"warmup": True})
        found.setdefault(self.fn.__name__, []).append(kernel)
        return kernel

    driver.set_active(Hopper())
    JITFunction.run = compile_only
    launch_everything()
    return found


def resources(kernel: Any) -> tuple[int, int]:
    """Registers, and bytes of local memory: what did not fit into registers."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        text = subprocess.run([tool, "--dump-resource-usage", file.name], capture_output=True, text=True).stdout
    (registers,), (stack,), (local,) = (re.findall(rf"{name}:(\d+)", text) for name in ("REG", "STACK", "LOCAL"))
    return int(registers), int(stack) + int(local)


def launched_somewhere() -> set[str]:
    """Names of all kernels of the package that are launched by Python, not by other kernels."""
    names = set()
    for info in pkgutil.iter_modules(kernels.__path__):
        module = importlib.import_module(f"{kernels.__name__}.{info.name}")
        source = Path(str(module.__file__)).read_text(encoding="utf-8")
        own = [name for name, value in vars(module).items() if isinstance(value, JITFunction)]
        names |= {name for name in own if f"{name}[" in source}
    return names


def main() -> None:
    found = compiled_kernels()
    assert set(found) == launched_somewhere(), launched_somewhere() ^ set(found)
    print(json.dumps({name: [resources(kernel) for kernel in forms] for name, forms in found.items()}))


if __name__ == "__main__":
    main()
