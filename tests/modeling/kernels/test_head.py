"""Log-probs and entropies against plain ones."""

import pytest
import torch

from tests.modeling.kernels.interpreter import DEVICE, MARKS, assert_same, normal  # isort: skip  # chooses it

from ragen.algorithms.entropy import head_logprobs as plain_head_logprobs
from ragen.modeling.kernels.head import head_logprobs

pytestmark = MARKS


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_and_entropies(temperature):
    # Small logits: an entropy is the difference of two sums of their size.
    hidden, weight = normal(10, 32), normal(5000, 32, seed=1).detach().mul(0.3).requires_grad_()
    targets = torch.arange(10, device=DEVICE) * 499
    ours = head_logprobs(hidden, weight, targets, temperature=temperature, chunk_size=4)
    theirs = plain_head_logprobs(hidden, lambda states: states @ weight.T, targets, temperature=temperature)
    assert_same(torch.stack(ours), torch.stack(theirs), (hidden, weight))
