"""Values of overrides as the command line has them.

Tested in tests/sweeps/test_plan.py.
"""

import re

PLAIN = re.compile(r"(?!(true|false|null|nan|inf)\Z)[a-z_/][\w./-]*", re.IGNORECASE)
"""Texts that need no quotes in an override."""


def quoted(text: str) -> str:
    """A text as the value of an override, in quotes where the config loader would read something else.

    a/b.c -> a/b.c, x y -> 'x y', true -> 'true', it's -> 'it\\'s'
    """
    if PLAIN.fullmatch(text):
        return text
    # Only before a quote backslashes are written twice.
    return "'" + re.sub(r"(\\*)('|\Z)", lambda found: found[1] * 2 + "\\'" * bool(found[2]), text) + "'"
