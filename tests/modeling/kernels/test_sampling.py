"""Drawing tokens against the method of the CPU."""

import numpy as np
import pytest
import torch

from tests.modeling.kernels.interpreter import CPU_ONLY  # isort: skip  # chooses it

from ragen.engine.base import SamplingParams
from ragen.engine.sampling import BatchParams, sample
from ragen.modeling.kernels import sampling, session

pytestmark = CPU_ONLY


@pytest.mark.slow
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
