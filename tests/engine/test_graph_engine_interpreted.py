"""The graph engine on a CPU, its kernels run by Triton's interpreter: slow, but equal to the plain engine."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest
import torch

if torch.cuda.is_available() or "triton" in sys.modules:
    pytest.skip("the interpreter is for machines without a GPU", allow_module_level=True)
os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton")
if np.lib.NumpyVersion(np.__version__) >= "2.4.0":
    pytest.skip("Triton 3.6's interpreter does not know NumPy 2.4", allow_module_level=True)

from ragen.engine.base import SamplingParams
from ragen.engine.graph.engine import GraphEngine
from ragen.engine.native.engine import NativeEngine
from ragen.engine.sampling import BatchParams, sample
from ragen.modeling.kernels import sampling, session
from ragen.modeling.kernels.activation import gated_product
from ragen.modeling.kernels.attention import PagedAttention
from tests.engine.families import wide
from tests.engine.requests import prompt, request, run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_replies_equal_those_of_the_plain_engine_over_two_turns(family):
    model = wide(family)
    engine, plain = GraphEngine(model, max_num_seqs=4, max_num_batched_tokens=48), NativeEngine(model)
    contexts = {0: prompt(5), 1: prompt(66, seed=1), 2: prompt(66, seed=1)}
    for turn in range(2):
        requests = [
            request(s, ids, seed=10 * turn + s, temperature=(1.0, 0.7, 0.0)[s], max_tokens=3)
            for s, ids in contexts.items()
        ]
        done, expected = run(engine, requests), run(plain, requests)
        for number, completion in done.items():
            assert completion.token_ids == expected[number].token_ids
            assert completion.logprobs == pytest.approx(expected[number].logprobs, abs=1e-4)
            assert completion.entropies == pytest.approx(expected[number].entropies, abs=1e-4)
            contexts[number] = [*contexts[number], *completion.token_ids, 4, 5]
    assert engine.num_prefilled == plain.num_prefilled


def test_entropies_of_a_large_vocabulary_with_words_that_cannot_be_drawn():
    torch.manual_seed(0)
    logits = 3 * torch.randn(4, 2 * sampling.CHUNK + 77)
    logits[1, : sampling.CHUNK] = -torch.inf  # a whole chunk
    logits[2, 5:] = -torch.inf
    logits[3, 8] = 100.0  # one word is certain
    temperatures = np.array([1.0, 0.5, 0.0, 1.0])
    state = torch.zeros(4, session.HEADER, dtype=torch.int64)
    state[:, session.TEMPERATURE] = torch.from_numpy(temperatures.view(np.int64))
    out = torch.full((3, 4), -1, dtype=torch.int32)
    sampling.draw(logits, torch.arange(4), state, out, advance=False)
    params = BatchParams([SamplingParams(max_tokens=1, temperature=t) for t in temperatures.tolist()], logits.device)
    *_, expected = sample(logits, params, np.zeros(4))
    torch.testing.assert_close(out[2].view(torch.float32), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("num_rows", "width"), [(3, 96), (70, 96), (2050, 160)])
def test_gated_product_in_one_kernel_or_two(num_rows, width):
    torch.manual_seed(0)
    x, weight = torch.randn(num_rows, 72), torch.randn(2 * width, 72) / 8
    gate, up = (x @ weight.t()).chunk(2, dim=1)
    torch.testing.assert_close(gated_product(x, weight), torch.nn.functional.silu(gate) * up, rtol=1e-4, atol=1e-4)


def test_attention_of_large_batches_equals_that_of_small_ones():
    torch.manual_seed(0)
    heads, kv_heads, dim, places = 6, 2, 32, [5, 64, 150]
    angles = torch.rand(256, dim // 2) * 6
    attention = PagedAttention(
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=dim,
        scale=dim**-0.5,
        eps=1e-6,
        cos=angles.cos(),
        sin=angles.sin(),
        max_rows=256,
    )
    memory = torch.randn(3 * len(places), attention.layer_bytes // 4)
    state = torch.zeros(len(places), session.HEADER + 3, dtype=torch.int64)
    state[:, session.POSITION] = torch.tensor(places)
    state[:, session.HEADER :] = torch.tensor([page.data_ptr() for page in memory]).view(-1, 3)
    qkv = torch.randn(len(places), (heads + 2 * kv_heads) * dim)
    few = attention.decode(0, qkv, None, torch.arange(len(places)), state)
    slots = torch.full((256,), -1)
    slots[: len(places)] = torch.arange(len(places))
    many = attention.decode(0, torch.cat([qkv, torch.zeros(253, qkv.shape[1])]), None, slots, state)
    torch.testing.assert_close(many[: len(places)], few, rtol=1e-4, atol=1e-5)
