"""What an answer to a Sudoku says: digits and where they go, in the few spellings that people use."""

from __future__ import annotations

import re
from dataclasses import dataclass

PLACEMENT = re.compile(
    r"r(?:ow)?[ ]{0,2}(?P<row>[0-9]{1,3})[ ]{0,2},?[ ]{0,2}"
    r"c(?:ol(?:umn)?)?[ ]{0,2}(?P<col>[0-9]{1,3})[ ]{0,2}(?:=|:)[ ]{0,2}(?P<digit>[0-9]{1,3})(?![0-9])",
    re.IGNORECASE,
)
SEPARATORS = re.compile(r"(?:[\s,;|.]|\band\b)+", re.IGNORECASE)
"""What may stand between two placements."""
LONGEST = 10_000
"""Characters of an answer that is read."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A digit for a cell, as it was written: 0 empties the cell, and any of the three may be out of range."""

    row: int
    """Counted from 1."""
    col: int
    digit: int

    def __str__(self) -> str:
        return f"r{self.row}c{self.col}={self.digit}"


def read_placements(text: str) -> list[Placement] | None:
    """The placements of an answer in their order; None where it holds anything else, or nothing.

    "r1c2=3, row 2 col 4 = 1" -> [Placement(1, 2, 3), Placement(2, 4, 1)]
    """
    if len(text) > LONGEST:
        return None
    if not SEPARATORS.fullmatch(PLACEMENT.sub(",", text)):
        return None
    return [Placement(*map(int, match.group("row", "col", "digit"))) for match in PLACEMENT.finditer(text)] or None
