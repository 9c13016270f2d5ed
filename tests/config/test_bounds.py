"""A bound stands at its field; what leaves it is refused with the key, the value and what to do."""

from dataclasses import dataclass
from typing import Annotated

import pytest

from ragen.config.bounds import Bound, Count, Name, Share, ZeroToOne
from ragen.config.strict import build_dataclass
from ragen.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class Kite:
    string: Annotated[Count, "Metres of string."] = 30
    wind: Annotated[ZeroToOne, "Share of days with wind."] = 0.5
    owner: Annotated[Name | None, "Who flies it."] = None
    sizes: Annotated[tuple[int, int], "Width and height.", Bound(lambda s: s[0] < s[1], "Make it taller.")] = (1, 2)
    tails: Annotated[tuple[Share, ...], "Lengths of the tails."] = ()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"string": 0}, "kite.string is 0. Set it to a number at least 1 and at most 10^9."),
        ({"string": 10**9 + 1}, "kite.string is 1000000001. Set it to a number at least 1 and at most 10^9."),
        ({"wind": 1.5}, "kite.wind is 1.5. Set it to a number from 0 to 1."),
        ({"owner": " "}, "kite.owner is ' '. Set it to a text that is not empty, or leave it out."),
        ({"sizes": [2, 1]}, "kite.sizes is [2, 1]. Make it taller."),
        ({"tails": [1, 0]}, "kite.tails[1] is 0.0. Set it to a number above 0 and at most 1."),
    ],
)
def test_a_value_outside_its_bound_is_refused(changes: dict, text: str):
    with pytest.raises(ConfigError) as caught:
        build_dataclass(Kite, changes, "kite")
    assert str(caught.value) == text


def test_the_ends_of_a_range_are_inside_and_null_has_no_bound():
    built = build_dataclass(Kite, {"string": 10**9, "wind": 0, "owner": None, "tails": [1]}, "kite")
    assert built == Kite(string=10**9, wind=0.0, tails=(1.0,))


def test_a_wrong_type_is_named_before_any_bound():
    with pytest.raises(ConfigError, match="expected an integer"):
        build_dataclass(Kite, {"string": "0"}, "kite")
