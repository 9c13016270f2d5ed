"""The generator is the published one, and its streams do not depend on each other."""

import numpy as np
import pytest

from ragen.seeding import Rng, fixed_hash


def test_the_stream_is_splitmix64():
    rng = Rng()
    rng.state = 0
    # The reference outputs for seed 0, as printed in many other implementations.
    assert [rng.next() for _ in range(3)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_a_key_gives_the_same_number_for_ever():
    assert fixed_hash(7, "level") == 0x8F06857F17FBB54C
    assert [Rng(7, "level").below(100), Rng(7, "slip", 3).below(100)] == [76, 53]


def test_keys_that_look_alike_are_different():
    keys = [(), (0,), (0, 0), (1,), (-1,), (256,), (2**64 + 1,), ("",), ("1",), ("\x01",), ("a", "b"), ("ab",)]
    assert len({fixed_hash(*key) for key in keys}) == len(keys)


def test_numpy_integers_name_the_same_stream():
    assert fixed_hash(np.int64(5), "x") == fixed_hash(5, "x")


@pytest.mark.parametrize("n", [1, 2, 3, 10])
def test_below_is_uniform(n: int):
    rng = Rng("uniform", n)
    counts = [0] * n
    for _ in range(6000):
        counts[rng.below(n)] += 1
    # Five standard deviations of a binomial count.
    assert all(abs(count - 6000 / n) <= 5 * (6000 / n) ** 0.5 for count in counts)


def test_random_lies_in_the_unit_interval_with_mean_one_half():
    rng = Rng("floats")
    draws = [rng.random() for _ in range(5000)]
    assert min(draws) >= 0 and max(draws) < 1
    assert abs(sum(draws) / 5000 - 0.5) < 0.02


def test_gauss_has_the_asked_mean_and_deviation():
    rng = Rng("normal")
    draws = [rng.gauss(3, 2) for _ in range(5000)]
    assert np.mean(draws) == pytest.approx(3, abs=0.15)
    assert np.std(draws) == pytest.approx(2, abs=0.1)


def test_shuffle_and_sample_keep_the_items():
    rng = Rng("cards")
    cards = list(range(10))
    rng.shuffle(cards)
    assert sorted(cards) == list(range(10)) and cards != list(range(10))
    hand = rng.sample(cards, 4)
    assert len(set(hand)) == 4 and set(hand) <= set(cards)
