"""Drawing tokens: the noise itself, the distribution it gives, and the cuts, with numbers worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from ragen.engine import sampling
from ragen.engine.base import SamplingParams
from ragen.engine.sampling import BatchParams, arrival_times, noise_keys, sample

LAST_SEED = 2**64 - 1
CPU = torch.device("cpu")


def params(*rows: dict) -> BatchParams:
    return BatchParams([SamplingParams(max_tokens=1, **row) for row in rows], CPU)


def logits_of(*probs: float, rows: int = 1) -> torch.Tensor:
    return torch.tensor(probs).log().repeat(rows, 1)


def keys_of(count: int) -> np.ndarray:
    return noise_keys(range(count), [3] * count)


def draw(probs: list[float], count: int, **row) -> list[int]:
    """The tokens under `count` keys."""
    tokens, *_ = sample(logits_of(*probs, rows=count), params(*[row] * count), keys_of(count))
    return tokens.tolist()


def kept(probs: list[float], **row) -> set[int]:
    """The tokens that can be drawn at all."""
    return set(draw(probs, 1000, **row))


def chi_square(tokens: list[int], probs: list[float]) -> float:
    expected = len(tokens) * np.array(probs)
    return float(((np.bincount(tokens, minlength=len(probs)) - expected) ** 2 / expected).sum())


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
def test_keys_are_the_same_on_every_machine(seed, position, expected):
    [key] = noise_keys(np.array([seed], dtype=np.uint64), np.array([position])).view(np.uint64)
    assert int(key) >> 11 == expected * 2**53


def test_the_key_of_a_row_does_not_depend_on_the_other_rows():
    seeds, positions = np.array([12345, 0, 1], dtype=np.uint64), np.array([7, 1, 0])
    alone = [noise_keys([seed], [position])[0] for seed, position in zip(seeds, positions, strict=True)]
    assert noise_keys(seeds, positions).tolist() == alone


def scrambled(number: int, key: int) -> int:
    """lowbias32 by the book, with Python's integers."""
    bits = number ^ (key & 0xFFFFFFFF)
    bits = ((bits ^ (bits >> 16)) * 0x7FEB352D % 2**32) ^ (key >> 32)
    bits = (bits ^ (bits >> 15)) * 0x846CA68B % 2**32
    return bits ^ (bits >> 16)


def test_times_are_exponential_numbers_of_the_key_and_the_number():
    keys, numbers = noise_keys([1, LAST_SEED], [0, 9]), [0, 1, 4095, 151_935, 2**32 - 1]
    expected = [
        [-math.log1p(-(scrambled(number, int(key)) + 0.5) / 2**32) for number in numbers]
        for key in keys.view(np.uint64)
    ]
    times = arrival_times(keys, torch.tensor(numbers))
    torch.testing.assert_close(times, torch.tensor(expected), rtol=1e-6, atol=0)


@pytest.mark.parametrize("axis", ["keys", "numbers"])
def test_times_are_uncorrelated_along_keys_and_numbers(axis):
    count = 20_000
    if axis == "keys":
        times = arrival_times(keys_of(count), torch.tensor([5]))[:, 0]
    else:
        times = arrival_times(keys_of(1), torch.arange(count))[0]
    uniform = torch.exp(-times).numpy()
    bins = np.histogram(uniform, bins=20, range=(0, 1))[0]
    # 19 degrees of freedom: 43.8 is exceeded once in a thousand times, and the numbers are fixed.
    assert ((bins - 1000) ** 2 / 1000).sum() < 43.8
    assert abs(np.corrcoef(uniform[:-1], uniform[1:])[0, 1]) < 0.02
    assert len(np.unique(times)) > 0.999 * count


def test_the_shortest_and_the_longest_time_are_finite():
    """A time of 0 would draw a token whatever its probability, an infinite one would never draw a certain token."""
    key = noise_keys([0], [0])
    low, high = (int(word) for word in key.view(np.uint32))
    undo = {bits: _unscrambled(bits, low, high) for bits in (0, 2**32 - 1)}
    times = arrival_times(key, torch.tensor([undo[0], undo[2**32 - 1]]))[0]
    assert times.tolist() == pytest.approx([2.0**-33, 24 * math.log(2)])


def _unscrambled(bits: int, low: int, high: int) -> int:
    """The number whose scrambled bits these are."""
    bits ^= bits >> 16
    bits = bits * pow(0x846CA68B, -1, 2**32) % 2**32
    bits ^= (bits >> 15) ^ (bits >> 30)
    bits = (bits ^ high) * pow(0x7FEB352D, -1, 2**32) % 2**32
    return bits ^ (bits >> 16) ^ low


# Drawing


def test_a_token_without_probability_is_never_drawn():
    assert kept([0.0, 0.5, 0.0, 0.5, 0.0]) == {1, 3}


@pytest.mark.parametrize("chunk", [4096, 2])
def test_twenty_thousand_draws_follow_the_distribution(chunk, monkeypatch):
    monkeypatch.setattr(sampling, "CHUNK", chunk)
    probs = [0.4, 0.25, 0.15, 0.1, 0.1]
    # Four degrees of freedom: 18.5 is exceeded once in a thousand times.
    assert chi_square(draw(probs, 20_000), probs) < 18.5


@pytest.mark.parametrize(("temperature", "odds"), [(2.0, 2.0), (0.5, 16.0)])
def test_temperature_flattens_and_sharpens(temperature, odds):
    share = odds / (odds + 1)
    # One degree of freedom: 10.8 is exceeded once in a thousand times.
    assert chi_square(draw([0.8, 0.2], 5000, temperature=temperature), [share, 1 - share]) < 10.8


def test_a_likelier_token_takes_draws_from_others_and_moves_no_other():
    before, after = (draw(probs, 5000) for probs in ([0.2, 0.3, 0.1, 0.4], [0.2, 0.3, 0.2, 0.4]))
    changed = {(old, new) for old, new in zip(before, after, strict=True) if old != new}
    assert changed == {(0, 2), (1, 2), (3, 2)}


def test_a_likelier_token_of_another_chunk_moves_draws_to_its_chunk_only(monkeypatch):
    monkeypatch.setattr(sampling, "CHUNK", 2)
    before, after = (draw(probs, 5000) for probs in ([0.2, 0.3, 0.1, 0.4], [0.2, 0.3, 0.2, 0.4]))
    changed = {(old, new) for old, new in zip(before, after, strict=True) if old != new}
    assert changed == {(0, 2), (1, 2), (0, 3), (1, 3), (3, 2)}


def test_the_draw_of_a_row_does_not_depend_on_the_other_rows():
    logits = torch.randn(20, 50, generator=torch.Generator().manual_seed(0))
    together, *_ = sample(logits, params(*[{}] * 20), keys_of(20))
    alone = [sample(logits[i : i + 1], params({}), keys_of(20)[i : i + 1])[0].item() for i in range(20)]
    assert together.tolist() == alone


@pytest.mark.parametrize(("temperature", "odds"), [(1.0, 4.0), (2.0, 2.0), (0.5, 16.0)])
def test_log_probs_are_those_of_the_tempered_distribution(temperature, odds):
    rows = [{"temperature": temperature}] * 50
    tokens, logprobs, _ = sample(logits_of(0.8, 0.2, rows=50), params(*rows), keys_of(50))
    assert set(tokens.tolist()) == {0, 1}
    expected = [math.log((odds if token == 0 else 1) / (odds + 1)) for token in tokens.tolist()]
    assert logprobs.tolist() == pytest.approx(expected, abs=1e-6)


def test_greedy_takes_the_likeliest_token_and_reports_its_log_prob_at_temperature_one():
    tokens, logprobs, _ = sample(logits_of(0.2, 0.7, 0.1, rows=50), params(*[{"temperature": 0}] * 50), keys_of(50))
    assert set(tokens.tolist()) == {1}
    assert logprobs.tolist() == pytest.approx([math.log(0.7)] * 50)


def test_greedy_rows_and_sampled_rows_share_a_batch():
    rows = [{"temperature": 0}, {}, {"temperature": 2.0}, {"temperature": 0, "top_p": 0.1}, {"top_k": 1}]
    seen = [set[int]() for _ in rows]
    for key in range(60):
        keys = noise_keys([key] * 5, [0] * 5)
        tokens, logprobs, _ = sample(logits_of(0.8, 0.2, rows=5), params(*rows), keys)
        for tokens_seen, token in zip(seen, tokens.tolist(), strict=True):
            tokens_seen.add(token)
        of_first = [0.8, 0.8, 2 / 3, 0.8, 0.8]
        expected = [p if token == 0 else 1 - p for p, token in zip(of_first, tokens.tolist(), strict=True)]
        assert logprobs.exp().tolist() == pytest.approx(expected)
    assert seen == [{0}, {0, 1}, {0, 1}, {0}, {0}]


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
    *_, entropies = sample(logits_of(0.5, 0.25, 0.25), params(row), keys_of(1))
    assert entropies.tolist() == pytest.approx([expected])


def test_words_without_probability_have_no_entropy():
    *_, entropies = sample(logits_of(0.5, 0.0, 0.5, 0.0), params({}), keys_of(1))
    assert entropies.tolist() == pytest.approx([math.log(2)])
    *_, entropies = sample(logits_of(0.0, 1.0), params({}), keys_of(1))
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
    assert kept([0.25, 0.25, 0.25, 0.25], top_p=0.5) == {0, 1}


def test_what_is_kept_shares_the_whole_probability():
    # 0.5 and 0.25 become two thirds and one third; one degree of freedom.
    tokens = draw([0.125, 0.5, 0.125, 0.25], 5000, top_k=2)
    assert chi_square([{1: 0, 3: 1}[token] for token in tokens], [2 / 3, 1 / 3]) < 10.8


def test_log_probs_are_those_before_the_cuts():
    _, logprobs, _ = sample(logits_of(0.5, 0.3, 0.2), params({"top_k": 1, "top_p": 0.1}), keys_of(1))
    assert logprobs.tolist() == pytest.approx([math.log(0.5)])


def test_each_row_is_cut_by_its_own_parameters():
    rows = [{"top_k": 1}, {"top_p": 0.5}, {"top_k": 2}, {}]
    seen = [set[int]() for _ in rows]
    for key in range(60):
        tokens, *_ = sample(logits_of(0.5, 0.25, 0.25, rows=4), params(*rows), noise_keys([key] * 4, [0] * 4))
        for tokens_seen, token in zip(seen, tokens.tolist(), strict=True):
            tokens_seen.add(token)
    assert seen == [{0}, {0}, {0, 1}, {0, 1, 2}]


def test_a_row_without_a_nucleus_is_not_cut_because_its_neighbour_has_one():
    # In single precision three thirds are 1 already, so nothing would be left for the last tokens.
    probs = sampling._truncated(torch.tensor([[1.0, 1.0, 1.0, 3e-9, 3e-9]] * 2) / 3, params({}, {"top_p": 0.5}))
    assert (probs[0] > 0).all()
    assert (probs[1] > 0).tolist() == [True, True, False, False, False]


def test_half_precision_logits_are_drawn_in_single_precision():
    logits = logits_of(0.7, 0.2, 0.1).to(torch.bfloat16)
    [token], logprobs, _ = sample(logits, params({}), keys_of(1))
    assert logprobs.dtype == torch.float32
    assert logprobs.tolist() == torch.log_softmax(logits.float(), dim=-1)[:, token].tolist()
