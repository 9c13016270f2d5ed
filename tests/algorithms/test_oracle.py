"""Our formulas against verl's, values and gradients, on masks with holes.

The numbers of verl 0.9.1 for a fixed batch are checked in and always compared. With verl installed (`make
test-oracle`) many random batches are compared with the living code.
"""

from __future__ import annotations

import pytest
import torch

from tests.algorithms.verl_cases import CASES, fixed_inputs, load_core_algos, random_inputs
from tests.algorithms.verl_numbers import NUMBERS


def test_every_case_has_its_numbers():
    assert list(NUMBERS) == list(CASES)


@pytest.mark.parametrize("name", CASES)
def test_our_formulas_give_the_numbers_of_verl(name):
    ours = CASES[name][0](fixed_inputs())
    assert set(NUMBERS[name]) <= set(ours)
    for key, expected in NUMBERS[name].items():
        assert ours[key].flatten().tolist() == pytest.approx(expected, rel=1e-4, abs=2e-5), key


@pytest.fixture(scope="module")
def core_algos():
    core = load_core_algos()
    if core is None:
        pytest.skip("verl is not installed; its numbers for a fixed batch were compared. Live: make test-oracle")
    return core


@pytest.mark.parametrize("name", CASES)
def test_our_formulas_agree_with_the_living_verl(core_algos, name):
    ours, theirs = CASES[name]
    for seed in range(20):
        inputs = random_inputs(seed)
        mine, reference = ours(inputs), theirs(core_algos, inputs)
        for key, expected in reference.items():
            assert torch.allclose(mine[key], expected, rtol=1e-4, atol=2e-5), (key, seed)
