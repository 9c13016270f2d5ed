"""Options of packages: a wrong one is named with its key, before the package is asked."""

from dataclasses import dataclass, field
from typing import Optional

import pytest

from ragen.env.package_options import check_options
from ragen.errors import ConfigError


@dataclass
class Generator:
    min_terms: int = 2
    limit: Optional[float] = None  # noqa: UP045 - as packages write it
    signs: tuple = ("+", "-")
    words: list[str] = field(default_factory=list)
    share: int = 0.2  # type: ignore[assignment]
    seed: int = 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_term": 3}, r"^g\.options\.min_term: unknown key\. Did you mean g\.options\.min_terms\? Keys"),
        ({"min_terms": "x"}, r"^g\.options\.min_terms: expected an integer, got 'x' \(str\)"),
        ({"seed": 3}, r"^g\.options\.seed: unknown key.*share\.$"),
        ({"limit": "much"}, r"^g\.options\.limit: expected a number"),
    ],
)
def test_a_wrong_option_is_named_with_what_is_expected(options, message):
    with pytest.raises(ConfigError, match=message):
        check_options(options, Generator, "g.options", own={"seed"})


def test_what_the_package_takes_is_handed_on():
    check_options({"min_terms": 3, "limit": 2, "signs": ["+"], "words": ("a",)}, Generator, "g.options")
    check_options({"limit": None, "share": 0.5}, Generator, "g.options")
    check_options({"anything": 1}, lambda **rest: None, "g.options")
