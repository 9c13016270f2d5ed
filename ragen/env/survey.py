"""What was tried of a package's tasks: those that work and those that are refused, with the reason, as data.

A survey is a JSON file beside its adapter, written by `python -m tools.adapters.survey PACKAGE`. It is read without the
package, so a wrong name is answered with the nearest one before anything is installed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ragen.config.strict import did_you_mean
from ragen.errors import ConfigError

NUM_SHOWN = 12
"""Names that a message lists; the whole list is on the page."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """The tasks of one version of a package."""

    package: str
    version: str
    allowed: tuple[str, ...]
    refused: dict[str, str]
    """Name -> why it cannot be used."""

    def check(self, name: str, key: str) -> None:
        """Refuse a name that is unknown or that did not pass; `key` is the option that holds it."""
        if name in self.refused:
            raise ConfigError(
                f"{key} {name!r} is refused: {self.refused[name]} (tried with {self.package} {self.version}). "
                f"Choose from: {shown(self.allowed)}."
            )
        if name not in self.allowed:
            raise ConfigError(
                f"{key} {name!r} is unknown.{did_you_mean(name, self.allowed)} Choose from: {shown(self.allowed)}."
            )


def shown(names: tuple[str, ...]) -> str:
    """("a", "b") -> "a, b"; of many names the first, and how many more there are in docs/adapters.md."""
    more = len(names) - NUM_SHOWN
    return ", ".join(names[:NUM_SHOWN]) + (f" and {more} more (docs/adapters.md)" if more > 0 else "")


def read_survey(path: Path) -> Survey:
    data = json.loads(path.read_text())
    return Survey(**{**data, "allowed": tuple(data["allowed"])})
