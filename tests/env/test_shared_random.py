"""Episodes that draw from the shared generators draw what each would have drawn alone."""

import random

import numpy as np

from ragen.env.shared_random import OwnRandom


def draw(own: OwnRandom) -> tuple[float, int]:
    with own:
        return random.random(), int(np.random.randint(1000))


def test_two_episodes_that_take_turns_do_not_disturb_each_other():
    alone = OwnRandom(1)
    expected = [draw(alone), draw(alone)]
    first, second = OwnRandom(1), OwnRandom(2)
    mixed = [draw(first), draw(second), draw(first)]
    assert [mixed[0], mixed[2]] == expected
    assert mixed[1] != mixed[0]


def test_outside_nothing_has_changed():
    random.seed(5)
    np.random.seed(5)
    expected = random.random(), np.random.random()
    random.seed(5)
    np.random.seed(5)
    draw(OwnRandom(1))
    assert (random.random(), np.random.random()) == expected
