"""Types of command line options: a wrong number is a sentence, not a traceback further down."""

import argparse
import math
import re
from collections.abc import Callable

from ragen.config.bounds import LARGEST_COUNT


def whole_number(least: int, most: int = LARGEST_COUNT) -> Callable[[str], int]:
    """The type of an option that takes a whole number from `least` to `most`."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"\d{1,18}", text) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text[:60]!r} is not a whole number from {least} to {most}")
        return int(text)

    return parse


positive = whole_number(1)
not_negative = whole_number(0)
num_seeds = whole_number(1, 1000)


def finite(text: str) -> float:
    """A number that is neither NaN nor infinite."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text[:60]!r} is not a finite number")
    return value


def share(text: str) -> float:
    """A number above 0 and up to 1."""
    value = finite(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share above 0 and up to 1")
    return value
