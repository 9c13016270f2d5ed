"""Seeded random numbers that are the same on every machine, in every process and with every Python version.

Levels are named by their seed, so a level must never change because a library changed its generator. The generator
is splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014) on Python integers.
"""

from __future__ import annotations

import math
import operator
from collections.abc import MutableSequence, Sequence
from typing import SupportsIndex, TypeVar

T = TypeVar("T")

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15  # 2**64 divided by the golden ratio, the stride of splitmix64


def mix(word: int) -> int:
    """Scramble 64 bits; a one-to-one map whose outputs look random even for neighbouring inputs."""
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
    return word ^ (word >> 31)


def fixed_hash(*keys: SupportsIndex | str) -> int:
    """A 64-bit number made from integers and names; unlike `hash`, it is not salted per process."""
    state = GOLDEN
    for key in keys:
        # The kind, the length and the sign keep 1, -1, 2**64 + 1 and "\x01" apart.
        if isinstance(key, str):
            data = key.encode()
            state = mix(state ^ (len(data) << 32))
        else:
            number = operator.index(key)  # NumPy's integers are welcome too
            data = number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)
            state = mix(state ^ len(data))
        for start in range(0, len(data), 8):
            state = mix((state + GOLDEN + int.from_bytes(data[start : start + 8], "little")) & MASK)
    return state


class Rng:
    """A stream of random numbers, independent for every combination of keys.

    Rng(7, "level") and Rng(7, "slip", 3) share a seed and nothing else.
    """

    __slots__ = ("state",)

    def __init__(self, *keys: SupportsIndex | str) -> None:
        self.state = fixed_hash(*keys)

    def next(self) -> int:
        """The next 64 random bits."""
        # mix() is written out: one call less matters, level generation spends much of its time here.
        self.state = word = (self.state + GOLDEN) & MASK
        word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
        return word ^ (word >> 31)

    def below(self, n: int) -> int:
        """A whole number from 0 to n - 1, each equally likely (up to n / 2**64)."""
        return (self.next() * n) >> 64

    def random(self) -> float:
        """A number in [0, 1) with 53 random bits."""
        return (self.next() >> 11) * 2.0**-53

    def gauss(self, mean: float, std: float) -> float:
        """A normal draw (Box and Muller, 1958)."""
        radius = math.sqrt(-2.0 * math.log(1.0 - self.random()))
        return mean + std * radius * math.cos(2.0 * math.pi * self.random())

    def choice(self, items: Sequence[T]) -> T:
        """One of the items, each equally likely."""
        return items[self.below(len(items))]

    def shuffle(self, items: MutableSequence[T]) -> None:
        """Put the items into a random order, in place (Fisher and Yates)."""
        for last in range(len(items) - 1, 0, -1):
            other = self.below(last + 1)
            items[last], items[other] = items[other], items[last]

    def sample(self, items: Sequence[T], count: int) -> list[T]:
        """`count` different items in random order."""
        pool = list(items)
        for index in range(count):
            other = index + self.below(len(pool) - index)
            pool[index], pool[other] = pool[other], pool[index]
        return pool[:count]
