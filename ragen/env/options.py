"""Checks that the environments' configs share."""

from __future__ import annotations

import dataclasses
from typing import Any

from ragen.errors import ConfigError


def require(is_fine: bool, field: str, value: Any, remedy: str) -> None:
    """Refuse a config value with a message that names it and says what to do."""
    if not is_fine:
        raise ConfigError(f"{field} is {value!r}. {remedy}")


def require_symbols(field: str, symbols: Any) -> None:
    """Every symbol of a board must be one visible character, and no two may be equal."""
    by_name = dataclasses.asdict(symbols)
    for name, symbol in by_name.items():
        is_visible = isinstance(symbol, str) and len(symbol) == 1 and symbol.isprintable() and not symbol.isspace()
        require(is_visible, f"{field}.{name}", symbol, "Use one visible character.")
    repeated = sorted({symbol for symbol in by_name.values() if list(by_name.values()).count(symbol) > 1})
    require(not repeated, field, by_name, f"Give each kind of cell its own symbol; repeated: {' '.join(repeated)}")
