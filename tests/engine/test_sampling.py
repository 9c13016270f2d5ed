"""Drawing tokens: the noise itself, the distribution it gives, and the cuts, with numbers worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from ragen.engine.base import SamplingParams
from ragen.engine.sampling import BatchParams, sample, uniform_noise

LAST_SEED = 2**64 - 1
CPU = torch.device("cpu")


def params(*rows: dict) -> BatchParams:
    return BatchParams([SamplingParams(max_tokens=1, **row) for row in rows], CPU)


def logits_of(*probs: float, rows: int = 1) -> torch.Tensor:
    return torch.tensor(probs).log().repeat(rows, 1)


def draw(probs: list[float], noise: list[float], **row) -> list[int]:
    """The token for each noise value."""
    tokens, *_ = sample(logits_of(*probs, rows=len(noise)), params(*[row] * len(noise)), np.array(noise))
    return tokens.tolist()


def kept(probs: list[float], **row) -> set[int]:
    """The tokens that can be drawn at all."""
    return set(draw(probs, list(np.arange(1000) / 1000), **row))


# Noise


@pytest.mark.parametrize(
    ("seed", "position", "expected"),
    [
        (0, 0, 0.6524484863740322),
        (0, 1, 0.03401170130434639),
        (1, 0, 0.36818951565166946),
        (1, 1, 0.9140224628703029),
        (12345, 7, 0.9838760143561948),
        (LAST_SEED, 0, 0.3662420901697574),
        (LAST_SEED, 4095, 0.3943715225628349),
    ],
)
def test_noise_is_the_same_on_every_machine(seed, position, expected):
    assert uniform_noise(np.array([seed], dtype=np.uint64), np.array([position])).tolist() == [expected]


def test_noise_of_a_row_does_not_depend_on_the_other_rows():
    seeds, positions = np.array([12345, 0, 1], dtype=np.uint64), np.array([7, 1, 0])
    assert uniform_noise(seeds, positions).tolist() == [0.9838760143561948, 0.03401170130434639, 0.36818951565166946]


@pytest.mark.parametrize("axis", ["seeds", "positions"])
def test_noise_is_uniform_and_uncorrelated_along_seeds_and_positions(axis):
    count = np.arange(20_000)
    fixed = np.full(20_000, 5)
    seeds, positions = (count, fixed) if axis == "seeds" else (fixed, count)
    noise = uniform_noise(seeds.astype(np.uint64), positions)
    assert noise.min() >= 0 and noise.max() < 1
    bins = np.histogram(noise, bins=20, range=(0, 1))[0]
    # 19 degrees of freedom: 43.8 is exceeded once in a thousand times, and the numbers are fixed.
    assert ((bins - 1000) ** 2 / 1000).sum() < 43.8
    assert abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 0.02
    assert len(np.unique(noise)) == 20_000


# Drawing


def test_noise_picks_the_token_whose_share_of_the_line_it_falls_into():
    assert draw([0.25, 0.5, 0.25], [0.0, 0.24, 0.26, 0.74, 0.76, 1 - 2**-53]) == [0, 0, 1, 1, 2, 2]


def test_a_token_without_probability_is_never_drawn():
    assert draw([0.0, 0.5, 0.0, 0.5, 0.0], [0.0, 0.49, 0.51, 1 - 2**-53]) == [1, 1, 3, 3]


def test_twenty_thousand_draws_follow_the_distribution():
    probs = [0.5, 0.3, 0.15, 0.05]
    noise = uniform_noise(np.arange(20_000).astype(np.uint64), np.zeros(20_000, dtype=int))
    counts = np.bincount(draw(probs, noise.tolist()), minlength=4)
    expected = 20_000 * np.array(probs)
    # Three degrees of freedom: 16.3 is exceeded once in a thousand times.
    assert ((counts - expected) ** 2 / expected).sum() < 16.3


def test_temperature_flattens_and_sharpens():
    # At temperature 2 the odds 4 : 1 become 2 : 1, at 0.5 they become 16 : 1.
    assert draw([0.8, 0.2], [0.66, 0.67], temperature=2.0) == [0, 1]
    assert draw([0.8, 0.2], [0.94, 0.95], temperature=0.5) == [0, 1]


@pytest.mark.parametrize(("temperature", "odds"), [(1.0, 4.0), (2.0, 2.0), (0.5, 16.0)])
def test_log_probs_are_those_of_the_tempered_distribution(temperature, odds):
    _, logprobs, _ = sample(
        logits_of(0.8, 0.2, rows=2), params(*[{"temperature": temperature}] * 2), np.array([0.0, 0.99])
    )
    assert logprobs.tolist() == pytest.approx([math.log(odds / (odds + 1)), math.log(1 / (odds + 1))], abs=1e-6)


def test_greedy_takes_the_likeliest_token_and_reports_its_log_prob_at_temperature_one():
    tokens, logprobs, _ = sample(logits_of(0.2, 0.7, 0.1), params({"temperature": 0}), np.array([0.999]))
    assert tokens.tolist() == [1]
    assert logprobs.tolist() == pytest.approx([math.log(0.7)])


def test_greedy_rows_and_sampled_rows_share_a_batch():
    rows = [{"temperature": 0}, {}, {"temperature": 2.0}, {"temperature": 0, "top_p": 0.1}, {"top_k": 1}]
    tokens, logprobs, _ = sample(logits_of(0.8, 0.2, rows=5), params(*rows), np.full(5, 0.9))
    assert tokens.tolist() == [0, 1, 1, 0, 0]
    assert logprobs.exp().tolist() == pytest.approx([0.8, 0.2, 1 / 3, 0.8, 0.8])


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({}, 1.5 * math.log(2)),  # a half of 1 bit and two quarters of 2 bits
        ({"temperature": 0}, 1.5 * math.log(2)),
        ({"top_k": 1, "top_p": 0.1}, 1.5 * math.log(2)),
        # The odds 2 : 1 : 1 become 4 : 1 : 1.
        ({"temperature": 0.5}, math.log(6) - 4 / 6 * math.log(4)),
    ],
)
def test_entropies_are_those_of_the_tempered_distribution_before_the_cuts(row, expected):
    *_, entropies = sample(logits_of(0.5, 0.25, 0.25), params(row), np.array([0.9]))
    assert entropies.tolist() == pytest.approx([expected])


def test_words_without_probability_have_no_entropy():
    *_, entropies = sample(logits_of(0.5, 0.0, 0.5, 0.0), params({}), np.array([0.9]))
    assert entropies.tolist() == pytest.approx([math.log(2)])
    *_, entropies = sample(logits_of(0.0, 1.0), params({}), np.array([0.9]))
    assert entropies.tolist() == [0.0]


# Cuts


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({}, {0, 1, 2, 3}),
        ({"top_k": 1}, {1}),
        ({"top_k": 2}, {1, 3}),
        ({"top_k": 9}, {0, 1, 2, 3}),
        ({"top_k": -1}, {0, 1, 2, 3}),
        ({"top_p": 0.01}, {1}),
        ({"top_p": 0.5}, {1}),
        ({"top_p": 0.51}, {1, 3}),
        ({"top_p": 0.75}, {1, 3}),
        ({"top_p": 0.76}, {0, 1, 3}),
        ({"top_p": 0.9}, {0, 1, 2, 3}),
        # Of the two likeliest, token 1 has two thirds.
        ({"top_k": 2, "top_p": 0.66}, {1}),
        ({"top_k": 2, "top_p": 0.67}, {1, 3}),
    ],
)
def test_top_k_and_top_p_keep_exactly_these_tokens(row, expected):
    assert kept([0.125, 0.5, 0.125, 0.25], **row) == expected


def test_of_equally_likely_tokens_the_first_ones_are_kept():
    assert kept([0.25, 0.25, 0.25, 0.25], top_k=2) == {0, 1}
    assert kept([0.25, 0.25, 0.25, 0.25], top_p=0.6) == {0, 1, 2}


def test_what_is_kept_shares_the_whole_line():
    # 0.5 and 0.25 become two thirds and one third, in the order of the vocabulary.
    assert draw([0.125, 0.5, 0.125, 0.25], [0.66, 0.67], top_k=2) == [1, 3]


def test_log_probs_are_those_before_the_cuts():
    _, logprobs, _ = sample(logits_of(0.5, 0.3, 0.2), params({"top_k": 1, "top_p": 0.1}), np.array([0.5]))
    assert logprobs.tolist() == pytest.approx([math.log(0.5)])


def test_each_row_is_cut_by_its_own_parameters():
    rows = [{"top_k": 1}, {"top_p": 0.5}, {"top_k": 2}, {}]
    tokens, *_ = sample(logits_of(0.5, 0.25, 0.25, rows=4), params(*rows), np.full(4, 0.99))
    assert tokens.tolist() == [0, 0, 1, 2]


def test_a_row_without_a_nucleus_is_not_cut_because_its_neighbour_has_one():
    # In single precision three thirds are 1 already, so nothing would be left for the last tokens.
    logits = logits_of(1.0, 1.0, 1.0, 3e-9, 3e-9, rows=2)
    noise = np.full(2, 1 - 1e-10)
    alone, *_ = sample(logits[:1], params({}), noise[:1])
    together, *_ = sample(logits, params({}, {"top_p": 0.5}), noise)
    assert alone[0] == together[0] == 4


def test_half_precision_logits_are_drawn_in_single_precision():
    logits = logits_of(0.7, 0.2, 0.1).to(torch.bfloat16)
    _, logprobs, _ = sample(logits, params({}), np.array([0.0]))
    assert logprobs.dtype == torch.float32
    assert logprobs.tolist() == torch.log_softmax(logits.float(), dim=-1)[:, 0].tolist()
