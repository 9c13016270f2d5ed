"""What a value must be besides its type, and how else it may be spelled.

A bound stands at its field, `Annotated[int, "One sentence.", Bound(...)]`, or in a type of its own where many fields
share it, `Annotated[Count, "One sentence."]`. Any other note with a method `check(value, path)` judges the value, too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated, Any

from ragen.errors import ConfigError

LARGEST_COUNT = 10**9


@dataclass(frozen=True, slots=True)
class Bound:
    """A condition on the value of one key, and what to do where it does not hold."""

    is_met: Callable[[Any], bool]
    remedy: str

    def check(self, value: Any, path: str) -> None:
        if not self.is_met(value):
            shown = list(value) if isinstance(value, tuple) else value
            raise ConfigError(f"{path} is {shown!r}. {self.remedy}")


@dataclass(frozen=True, slots=True)
class Spelling:
    """Replaces other spellings of a value, before its type is checked."""

    read: Callable[[Any], Any]


def number(is_met: Callable[[Any], bool], wanted: str) -> Bound:
    return Bound(is_met, f"Set it to a number {wanted}.")


COUNT = number(lambda x: 1 <= x <= LARGEST_COUNT, "at least 1 and at most 10^9")
NOT_NEGATIVE = number(lambda x: 0 <= x <= LARGEST_COUNT, "0 or more, at most 10^9")

Count = Annotated[int, COUNT]
CountOrZero = Annotated[int, NOT_NEGATIVE]
NotNegative = Annotated[float, NOT_NEGATIVE]
Positive = Annotated[float, number(lambda x: x > 0, "greater than 0")]
ZeroToOne = Annotated[float, number(lambda x: 0 <= x <= 1, "from 0 to 1")]
"""Not only shares and probabilities: a learning rate above 1 is a slip of the keyboard, too."""
Share = Annotated[float, number(lambda x: 0 < x <= 1, "above 0 and at most 1")]
Decay = Annotated[float, number(lambda x: 0 <= x < 1, "from 0 to below 1")]
Seed = Annotated[int, number(lambda x: x >= 0, "0 or more")]
TopK = Annotated[int, number(lambda x: x == -1 or x >= 1, "-1 (all) or at least 1")]
NOT_EMPTY = Bound(lambda text: bool(text.strip()), "Set it to a text that is not empty, or leave it out.")
BELOW = Bound(
    lambda text: not PurePath(text).is_absolute() and ".." not in PurePath(text).parts,
    "It names a folder below others: write it without .. and without a / at its start, or set "
    "trainer.default_local_dir to write elsewhere.",
)
Name = Annotated[str, NOT_EMPTY]
FolderName = Annotated[str, NOT_EMPTY, BELOW]
"""Part of a path: folders below others, such as a/b."""
