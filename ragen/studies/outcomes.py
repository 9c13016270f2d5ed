"""How a run of a list ended; `<name>.result.json` beside its log holds it. Drivers write it, reports and pages read it.

Tested in tests/sweeps/driving/test_results.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ragen.tracking.names import seconds

Status = Literal["success", "early_stopped", "fail", "missing"]
STATUS_OF_STATE: dict[str, Status] = {"finished": "success", "early_stopped": "early_stopped"}
"""State of status.json -> status of a run that has come to its end."""
DONE: tuple[Status, ...] = ("success", "early_stopped")
TIMES = {"train_time": seconds("train_total"), "eval_time": seconds("eval_total"), "total_time": seconds("total")}
"""Field of a result line -> metric of the last step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How a run ended; `<name>.result.json` holds the same fields."""

    status: Status
    fields: Mapping[str, str] = field(default_factory=dict)
    """What the result line begins with: the value, a seed, a score."""
    early_stop: str | None = None
    """The rule that ended it, as in the metric early_stopped/<rule>."""
    cause: str = ""
    """What lies behind that rule, as in status.json; empty where nothing is known of it."""
    times: Mapping[str, float] = field(default_factory=dict)
    """train_time, eval_time and total_time in seconds, as far as the run logged them."""
    wall_time: float | None = None
    device: str = "N/A"
    """Number and model of the GPUs, as in 4xH100."""
    last_lines: tuple[str, ...] = ()
    """The signal that killed a run, if one did, and the end of the log of one that failed."""

    @property
    def stop(self) -> str:
        """reward_variance_collapse: silence pays; without a known cause the rule alone, without a stop nothing."""
        return ": ".join(word for word in (self.early_stop, self.cause) if word)

    @property
    def line(self) -> str:
        """kl=0.01 | filter=nofilter | include_zero=True | train_time=61.20s | ... | gpu=1xH100 | status=success"""
        fields = dict(self.fields)
        for name in TIMES:
            fields[name] = f"{self.times[name]:.2f}s" if name in self.times else "N/A"
        fields["wall_time"] = "N/A" if self.wall_time is None else f"{self.wall_time:.0f}s"
        stop = {"early_stop": self.early_stop, "cause": self.cause}
        fields |= {"gpu": self.device, "status": self.status} | {name: word for name, word in stop.items() if word}
        return " | ".join(f"{name}={value}" for name, value in fields.items())

    @property
    def text(self) -> str:
        """The line; below it, indented, the last lines of a run that failed."""
        return f"{self.line}\n" + (f"    {' / '.join(self.last_lines)}\n" if self.last_lines else "")
