"""Drawing the next token of each session."""

# pyright: reportIndexIssue=false
# Without Triton installed, pyright takes a kernel for the plain function below its decorator.

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ragen.modeling.kernels.session import (
    COUNT_COLUMN,
    LOG2E_FACTOR,
    POSITION_COLUMN,
    SEED_COLUMN,
    TEMPERATURE_COLUMN,
    TOKEN_COLUMN,
)


@triton.jit
def _splitmix(x):
    """SplitMix64, as `ragen.engine.sampling.noise_keys` has it."""
    x = x + 0x9E3779B97F4A7C15
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


@triton.jit
def _arrival_times(numbers, low, high):
    """Exponential times of uint32 numbers under a key in two words; as `ragen.engine.sampling` has them."""
    bits = numbers ^ low
    bits ^= bits >> 16
    bits = (bits * 0x7FEB352D) ^ high
    bits ^= bits >> 15
    bits *= 0x846CA68B
    bits ^= bits >> 16
    uniform = tl.minimum((bits.to(tl.float32) + 0.5) * 2.0**-32, 1 - 2.0**-24)
    series = uniform * (1 + uniform * (0.5 + uniform * (1 / 3)))
    return tl.where(uniform < 2.0**-7, series, -tl.log(1 - uniform))


@triton.jit
def _tempered(state, slot, stride):
    """What logits are multiplied with to be powers of two at the session's temperature, and whether it is greedy."""
    temperature = tl.load(state + slot * stride + TEMPERATURE_COLUMN).to(tl.float64, bitcast=True).to(tl.float32)
    is_greedy = temperature == 0
    return LOG2E_FACTOR / tl.where(is_greedy, 1.0, temperature), is_greedy


@triton.jit
def _chunk_sums(logits, slots, state, tops, sums, moments, stride, vocab, num_chunks, CHUNK: tl.constexpr):
    """Of a part of the vocabulary: the maximum, the sum of exponentials, and that sum weighted with the exponents."""
    row, chunk = tl.program_id(0), tl.program_id(1)
    slot = tl.load(slots + row).to(tl.int64)
    if slot < 0:
        return
    factor, _ = _tempered(state, slot, stride)
    column = chunk * CHUNK + tl.arange(0, CHUNK)
    x = tl.load(logits + row.to(tl.int64) * vocab + column, mask=column < vocab, other=-float("inf")).to(tl.float32)
    top = tl.max(x, axis=0) * factor
    exponent = x * factor - tl.maximum(top, -1e30)
    weight = tl.exp2(exponent)
    tl.store(tops + row * num_chunks + chunk, top)
    tl.store(sums + row * num_chunks + chunk, tl.sum(weight, axis=0))
    tl.store(moments + row * num_chunks + chunk, tl.sum(tl.where(weight > 0, weight * exponent, 0.0), axis=0))


@triton.jit
def _draw(
    logits, slots, state, tops, sums, moments, out, stride, vocab, num_chunks, num_rows,
    CHUNK: tl.constexpr, CHUNKS: tl.constexpr, ADVANCE: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The chunk that arrives first at the rate of its mass, and in it the token that does.

    Of WIDTH rows that are neighbouring tokens of a session each has a key of its own, and the state stays.
    """
    row = tl.program_id(0)
    slot = tl.load(slots + row).to(tl.int64)
    if slot < 0:
        return
    own = state + slot * stride
    count = tl.load(own + COUNT_COLUMN) + row % WIDTH
    key = _splitmix(
        _splitmix(tl.load(own + SEED_COLUMN).to(tl.uint64, bitcast=True)) ^ count.to(tl.uint64, bitcast=True)
    )
    low, high = key.to(tl.uint32), (key >> 32).to(tl.uint32)

    # 1. The chunk
    chunk = tl.arange(0, CHUNKS)
    is_chunk = chunk < num_chunks
    chunk_top = tl.load(tops + row * num_chunks + chunk, mask=is_chunk, other=-float("inf"))
    chunk_sum = tl.load(sums + row * num_chunks + chunk, mask=is_chunk, other=0.0)
    top = tl.max(chunk_top, axis=0)
    mass = chunk_sum * tl.exp2(chunk_top - top)
    total = tl.sum(mass, axis=0)
    factor, is_greedy = _tempered(state, slot, stride)
    chosen = tl.argmax(mass / _arrival_times((-1 - chunk).to(tl.uint32), low, high), axis=0)
    chosen = tl.where(is_greedy, tl.argmax(chunk_top, axis=0), chosen)

    # 2. The token in it
    column = tl.arange(0, CHUNK)
    first = chosen * CHUNK
    line = logits + row.to(tl.int64) * vocab + first
    x = tl.load(line + column, mask=first + column < vocab, other=-float("inf")).to(tl.float32) * factor
    weights = tl.exp2(x - tl.max(x, axis=0))
    index = tl.argmax(weights / _arrival_times((first + column).to(tl.uint32), low, high), axis=0)
    index = tl.where(is_greedy, tl.argmax(x, axis=0), index)
    own_logit = tl.sum(tl.where(column == index, x, 0.0), axis=0)
    token = first + index
    tl.store(out + row, token)
    tl.store(out + num_rows + row, ((own_logit - top - tl.log2(total)) / LOG2E_FACTOR).to(tl.int32, bitcast=True))
    # With p = 2^y / total the entropy is log2(total) - sum(2^y * y) / total, in bits.
    moment = tl.load(moments + row * num_chunks + chunk, mask=is_chunk, other=0.0) * tl.exp2(chunk_top - top)
    moment += tl.where(mass > 0, mass * (chunk_top - top), 0.0)
    entropy = tl.maximum(tl.log2(total) - tl.sum(moment, axis=0) / total, 0.0) / LOG2E_FACTOR
    tl.store(out + 2 * num_rows + row, entropy.to(tl.int32, bitcast=True))
    if WIDTH == 1:
        tl.store(own + TOKEN_COLUMN, token.to(tl.int64))
        tl.store(own + COUNT_COLUMN, count + 1)
        if ADVANCE:
            tl.store(own + POSITION_COLUMN, tl.load(own + POSITION_COLUMN) + 1)


def draw(
    logits: Tensor, slots: Tensor, state: Tensor, out: Tensor, *, chunk: int, advance: bool, width: int = 1
) -> None:
    """Draw the next token of each session; its state moves on.

    With a `width` above 1 every `width` rows are neighbouring tokens of one session, and its state stays as it is.
    `out` [3, rows] int32 gets the tokens and the bits of their float32 log-probs and of the entropies, in nats, where
    they were drawn; rows with slot -1 are left alone.
    `chunk` tokens race with each other: one pass over the logits, and a second look at one chunk of each row.
    """
    rows, vocab = logits.shape
    num_chunks = triton.cdiv(vocab, chunk)
    tops = torch.empty(rows, num_chunks, dtype=torch.float32, device=logits.device)
    sums, moments = torch.empty_like(tops), torch.empty_like(tops)
    _chunk_sums[(rows, num_chunks)](
        logits, slots, state, tops, sums, moments, state.stride(0), vocab, num_chunks, CHUNK=chunk, num_warps=4
    )
    _draw[(rows,)](
        logits, slots, state, tops, sums, moments, out, state.stride(0), vocab, num_chunks, out.shape[1],
        CHUNK=chunk, CHUNKS=triton.next_power_of_2(num_chunks), ADVANCE=advance, WIDTH=width, num_warps=8,
    )  # fmt: skip
