"""What one process found out about a task."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(kw_only=True, slots=True)
class Trial:
    """A task on some seeds."""

    texts: list[str] = field(default_factory=list)
    """What another process must give alike."""
    fault: str = ""
    """Why the task cannot be used."""
