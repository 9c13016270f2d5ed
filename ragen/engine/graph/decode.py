"""Forward passes of the graph engine: one for prompts, one that decodes a token of every open reply.

Both are captured as CUDA graphs for a ladder of sizes, the first time a size is needed. All a graph reads from
outside is in buffers that stay: weights, the state of the sessions, and the list of sessions it is to serve.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ragen.engine.base import Request
from ragen.engine.graph.fused import Layer, fuse
from ragen.engine.graph.pages import PagePool, PageTables
from ragen.engine.graph.prompts import PromptBatch
from ragen.engine.sampling import CHUNK, MASK, BatchParams, noise_keys, sample
from ragen.engine.sessions import Session
from ragen.modeling.kernels.activation import gated_product
from ragen.modeling.kernels.attention import BLOCK, PagedAttention, copy_pages
from ragen.modeling.kernels.embedding import embed_last
from ragen.modeling.kernels.norm import rms_norm_rows
from ragen.modeling.kernels.sampling import draw
from ragen.modeling.kernels.session import COUNT, HEADER, PAGE, POSITION, SEED, TEMPERATURE, TOKEN
from ragen.modeling.load import to_device

PROMPT_LADDER = [64, 128, 256, 512, 1024, 2048]
"""Numbers of prompt tokens that get a graph; more keep the GPU busy without, unless they fill a pass."""
FEW = 64
"""Tokens a full pass of prompts draws in its smaller graph."""


def batch_ladder(largest: int) -> list[int]:
    """Batch sizes that get a graph; a batch is padded to the next.

    largest 200 -> [1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 200]
    """
    ladder = [1, 2, 4, 8, 16]
    while ladder[-1] < largest:
        doubled = 2 ** (ladder[-1].bit_length() - 1)  # the power of two below: two rungs for every doubling
        ladder.append(ladder[-1] + max(16, doubled // 2))
    return [size for size in ladder if size < largest] + [largest]


def rung(ladder: list[int], size: int) -> int | None:
    """The smallest rung that holds `size`."""
    return next((candidate for candidate in ladder if candidate >= size), None)


@dataclass(frozen=True, slots=True)
class _Pass:
    """A forward pass of one size, with the buffers it reads and writes."""

    run: Callable[[], None]
    inputs: Tensor
    out: Tensor
    """[3, rows] int32: tokens, and the bits of their float32 log-probs and entropies."""


class Runner:
    """A model on one device, ready to prefill and decode sessions in numbered slots."""

    def __init__(self, model: Any, *, num_slots: int, max_model_len: int, pass_tokens: int, use_graphs: bool) -> None:
        self.decoder = fuse(model)
        decoder = self.decoder
        self.device = decoder.embedding.device
        self.use_graphs = use_graphs
        self.ladder = batch_ladder(num_slots)
        self.pass_tokens = pass_tokens
        self.prompt_ladder = [size for size in PROMPT_LADDER if size < pass_tokens] if use_graphs else []
        cos, sin = decoder.rotary_tables(max_model_len)
        self.attention = PagedAttention(
            num_heads=decoder.num_heads,
            num_kv_heads=decoder.num_kv_heads,
            head_dim=decoder.head_dim,
            scale=decoder.scale,
            eps=decoder.eps,
            cos=cos,
            sin=sin,
            max_rows=num_slots,
        )
        self.pages = PagePool(self.attention.layer_bytes * len(decoder.layers), self.device)
        self.max_pages = -(-max_model_len // PAGE)
        self.state = torch.zeros(num_slots, HEADER + self.max_pages, dtype=torch.int64, device=self.device)
        self.logits = decoder.head.new_empty(num_slots, len(decoder.head))
        self._passes: dict[tuple[str, int, int], _Pass] = {}  # by kind, prompt tokens or sessions, tokens drawn
        self._stream = torch.cuda.Stream() if use_graphs else None
        self._pool = torch.cuda.graph_pool_handle() if use_graphs else None

    # What the host sends

    def write_state(self, sessions: Sequence[Session], pages: PageTables) -> None:
        """Tell the GPU about new replies."""
        if not sessions:
            return
        rows = np.zeros((len(sessions), HEADER + self.max_pages), dtype=np.int64)
        for row, session in zip(rows, sessions, strict=True):
            request, own = session.request, pages[session.slot]
            row[SEED] = np.uint64(request.seed & MASK).view(np.int64)
            row[POSITION], row[COUNT] = len(request.prompt_ids), 0
            row[TEMPERATURE] = np.float64(request.params.temperature).view(np.int64)
            row[HEADER : HEADER + len(own)] = own
        slots = np.array([session.slot for session in sessions])
        self.state.index_copy_(0, self._send(slots), self._send(rows))

    def copy_pages(self, pairs: list[tuple[int, int]]) -> None:
        """Copy pages, (from, to)."""
        if pairs:
            copy_pages(self._send(np.array(pairs)), self.pages.page_bytes)

    def _send(self, array: np.ndarray) -> Tensor:
        """Copy to the device without waiting for it."""
        return to_device(torch.from_numpy(np.ascontiguousarray(array, dtype=np.int64)), self.device)

    # Passes

    def decode(self, slots: np.ndarray, *, is_new: bool, truncated: list[Request], counts: np.ndarray) -> Tensor:
        """Draw the next token of each slot; `is_new` says that the list differs from that of the last call.

        `counts` [slots] are the tokens each reply has already. Returns [3, rows >= slots], as `_Pass.out`.
        """
        size = rung(self.ladder, len(slots))
        assert size is not None, f"{len(slots)} slots are more than there are"
        key = ("decode", size, size)
        if key not in self._passes:
            inputs = torch.full((size,), -1, dtype=torch.int64, device=self.device)
            out = torch.empty(3, size, dtype=torch.int32, device=self.device)
            self._passes[key] = self._captured(inputs, out, self._decode)
            is_new = True
        chosen = self._passes[key]
        if is_new:
            chosen.inputs.copy_(self._send(_padded(slots, size, -1)), non_blocking=True)
        chosen.run()
        if truncated:
            self._draw_truncated(self.logits[: len(slots)], chosen.out, slots, truncated, counts)
        return chosen.out

    def prefill(self, batch: PromptBatch, truncated: list[Request]) -> Tensor:
        """Compute prompt tokens and draw the first token of the replies whose prompt is complete."""
        num_tokens, num_samples = len(batch.ids), len(batch.samples)
        size = self._prompt_rung(num_tokens, num_samples)
        is_captured = size > 0
        size, rows = (size, self._prompt_rows(size, num_samples)) if is_captured else (num_tokens, num_samples)
        inputs = np.concatenate(
            [
                _padded(batch.ids, size),
                _padded(batch.blocks.ravel(), 3 * size // BLOCK),
                _padded(batch.samples[:, 0], rows, -1),
                _padded(batch.samples[:, 1], rows),
            ]
        )
        if is_captured:
            key = ("prefill", size, rows)
            if key not in self._passes:
                self._passes[key] = self._captured(
                    self._send(np.concatenate([np.zeros(len(inputs) - 2 * rows), np.full(rows, -1), np.zeros(rows)])),
                    torch.empty(3, rows, dtype=torch.int32, device=self.device),
                    lambda inputs, out: self._prefill(inputs, out, num_tokens=size),
                )
            chosen = self._passes[key]
            chosen.inputs.copy_(self._send(inputs), non_blocking=True)
            chosen.run()
            out = chosen.out
        else:
            out = torch.empty(3, rows, dtype=torch.int32, device=self.device)
            self._prefill(self._send(inputs), out, num_tokens=size)
        if truncated:
            counts = np.zeros(num_samples, dtype=np.int64)
            self._draw_truncated(self.logits[:num_samples], out, batch.samples[:, 0], truncated, counts)
        return out

    def _prompt_rung(self, num_tokens: int, num_samples: int) -> int:
        """Tokens of the graph that is to take a prompt batch; 0 if none is."""
        is_full = self.use_graphs and num_tokens == self.pass_tokens
        if is_full and num_samples <= self._prompt_rows(num_tokens, num_samples):
            return num_tokens
        return rung(self.prompt_ladder, max(num_tokens, num_samples * BLOCK)) or 0

    def _prompt_rows(self, num_tokens: int, num_samples: int) -> int:
        """Tokens that a graph for so many prompt tokens draws; those of full passes come in two sizes."""
        most = min(len(self.state), num_tokens // BLOCK)
        return min(most, FEW) if num_tokens == self.pass_tokens and num_samples <= FEW else most

    def _captured(self, inputs: Tensor, out: Tensor, run: Callable[[Tensor, Tensor], None]) -> _Pass:
        """The pass as a graph. `inputs` must name no session yet: a capture also runs the pass once."""
        if not self.use_graphs:
            return _Pass(lambda: run(inputs, out), inputs, out)
        assert self._stream is not None
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            run(inputs, out)  # compiles kernels and lets libraries choose theirs
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            run(inputs, out)
            graph.capture_end()
        torch.cuda.current_stream().wait_stream(self._stream)
        return _Pass(graph.replay, inputs, out)

    def _decode(self, slots: Tensor, out: Tensor) -> None:
        x = embed_last(slots, self.state, self.decoder.embedding)

        def attend(index: int, layer: Layer, qkv: Tensor) -> Tensor:
            return self.attention.decode(index, qkv, layer.head_norms, slots, self.state)

        self._draw(self._layers(x, attend), slots, out, advance=True)

    def _prefill(self, inputs: Tensor, out: Tensor, *, num_tokens: int) -> None:
        rows = out.shape[1]
        ids, blocks, slots, sources = inputs.split([num_tokens, 3 * num_tokens // BLOCK, rows, rows])
        x = torch.nn.functional.embedding(ids, self.decoder.embedding)

        def attend(index: int, layer: Layer, qkv: Tensor) -> Tensor:
            return self.attention.prefill(index, qkv, layer.head_norms, blocks, self.state)

        x = self._layers(x, attend, wanted=sources)
        if rows:
            self._draw(x, slots, out, advance=False)

    def _layers(
        self, x: Tensor, attend: Callable[[int, Layer, Tensor], Tensor], wanted: Tensor | None = None
    ) -> Tensor:
        """Hidden states [tokens, hidden] after all layers, or those of the `wanted` tokens only.

        Residuals are added by the matrix products. In the last layer all tokens have keys and values, the rest is
        computed for wanted ones.
        """
        eps, last = self.decoder.eps, len(self.decoder.layers) - 1
        for index, layer in enumerate(self.decoder.layers):
            normed = rms_norm_rows(x, layer.input_norm, eps)
            qkv = torch.nn.functional.linear(normed, layer.qkv, layer.qkv_bias)
            attended = attend(index, layer, qkv)
            if index == last and wanted is not None:
                x, attended = x[wanted], attended[wanted]
            x.addmm_(attended, layer.output.t())
            normed = rms_norm_rows(x, layer.mlp_norm, eps)
            x.addmm_(gated_product(normed, layer.gate_up), layer.down.t())
        return x

    def _draw(self, x: Tensor, slots: Tensor, out: Tensor, *, advance: bool) -> None:
        decoder = self.decoder
        logits = self.logits[: len(slots)]
        torch.mm(rms_norm_rows(x, decoder.norm, decoder.eps), decoder.head.t(), out=logits)
        draw(logits, slots, self.state, out, chunk=CHUNK, advance=advance)

    def _draw_truncated(
        self, logits: Tensor, out: Tensor, slots: np.ndarray, truncated: list[Request], counts: np.ndarray
    ) -> None:
        """Draw again, inside the nucleus and the likeliest k."""
        params = BatchParams([request.params for request in truncated], self.device)
        keys = noise_keys([request.seed for request in truncated], counts)
        tokens, logprobs, entropies = sample(logits, params, keys)
        out[:, : len(slots)] = torch.stack([tokens.int(), logprobs.view(torch.int32), entropies.view(torch.int32)])
        self.state[self._send(slots), TOKEN] = tokens


def _padded(values: np.ndarray, size: int, filler: int = 0) -> np.ndarray:
    padded = np.full(size, filler, dtype=np.int64)
    padded[: len(values)] = values
    return padded
