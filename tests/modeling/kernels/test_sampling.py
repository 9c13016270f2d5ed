"""Drawing tokens against the method of the CPU."""

import numpy as np
import pytest
import torch

from tests.modeling.kernels.interpreter import CPU_ONLY  # isort: skip  # chooses it

from ragen.engine.base import SamplingParams
from ragen.engine.sampling import CHUNK, BatchParams, noise_keys, sample
from ragen.modeling.kernels import sampling, session

pytestmark = CPU_ONLY


def drawn(logits: torch.Tensor, seeds: list[int], counts: list[int], temperatures: list[float]) -> torch.Tensor:
    """What the kernels write, [3, rows], with the states of sessions that have drawn `counts` tokens."""
    rows = len(logits)
    state = torch.zeros(rows, session.HEADER, dtype=torch.int64)
    state[:, session.SEED], state[:, session.COUNT] = torch.tensor(seeds), torch.tensor(counts)
    state[:, session.TEMPERATURE] = torch.from_numpy(np.array(temperatures).view(np.int64))
    out = torch.full((3, rows), -1, dtype=torch.int32)
    sampling.draw(logits, torch.arange(rows), state, out, chunk=CHUNK, advance=False)
    return out


def expected(logits: torch.Tensor, seeds: list[int], counts: list[int], temperatures: list[float]):
    params = BatchParams([SamplingParams(max_tokens=1, temperature=t) for t in temperatures], logits.device)
    return sample(logits, params, noise_keys(seeds, counts))


@pytest.mark.parametrize("vocab", [7, 300])
def test_tokens_of_a_small_vocabulary_are_those_of_the_cpu(vocab):
    torch.manual_seed(vocab)
    rows = 60
    logits, seeds = 2 * torch.randn(rows, vocab), [(row * 2**57 + row) % 2**63 for row in range(rows)]
    counts, temperatures = [row % 5 for row in range(rows)], [(1.0, 0.5, 0.0)[row % 3] for row in range(rows)]
    tokens, logprobs, entropies = expected(logits, seeds, counts, temperatures)
    out = drawn(logits, seeds, counts, temperatures)
    assert out[0].tolist() == tokens.tolist()
    torch.testing.assert_close(out[1].view(torch.float32), logprobs, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(out[2].view(torch.float32), entropies, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_large_vocabulary_with_words_that_cannot_be_drawn():
    torch.manual_seed(0)
    rows = 40
    logits = 3 * torch.randn(rows, 2 * CHUNK + 77)
    logits[1, :CHUNK] = -torch.inf  # a whole chunk
    logits[2, 5:] = -torch.inf
    logits[3, 8] = 100.0  # one word is certain
    counts, temperatures = [0] * rows, [1.0, 0.5, 0.0, 1.0] + [1.0] * (rows - 4)
    tokens, logprobs, entropies = expected(logits, list(range(rows)), counts, temperatures)
    out = drawn(logits, list(range(rows)), counts, temperatures)
    assert out[0].tolist() == tokens.tolist()
    assert {token // CHUNK for token in tokens.tolist()} >= {0, 1}
    torch.testing.assert_close(out[1].view(torch.float32), logprobs, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(out[2].view(torch.float32), entropies, rtol=1e-4, atol=1e-5)
