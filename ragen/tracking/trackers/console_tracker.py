"""What a person sees of a run: a live display on a terminal; in a log one short line per step, and more of long stages.

Tested in tests/tracking/test_console_tracker.py.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from statistics import fmean
from typing import Any, Literal

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ragen.algorithms.statistics import Estimate
from ragen.tracking import names
from ragen.tracking.console import PULSE_S, Pulse, compact, console, duration

Style = Literal["compact", "full"]

SHOWN = {
    "KL": (*names.KL_TO_REFERENCE, names.PPO_KL),  # to the reference where there is one, else the change by the update
    "entropy": names.ENTROPIES,
    "loss": (names.SFT_TRAIN_LOSS,),
    "val loss": (names.SFT_VAL_LOSS,),
}
"""Word -> the metrics that may hold it."""
BARS, PLAIN_BARS = "▁▂▃▄▅▆▇█", "_.-~=+*#"
CURVE_STEPS = 24
"""Steps in the small curve of the success."""
BAR_WIDTH = 30
MAX_LINE = 159
"""Characters of a line in a log; huge numbers make room for what comes before them."""
PACE_STEPS = 20
"""Steps whose mean time tells the time that is left."""


def step_line(step: int, metrics: Mapping[str, float]) -> str:
    """Everything that a step logged, in one line.

    3, {"actor/lr": 1e-6, "timing_s/total": 60.0} -> "step:3 - actor/lr:1e-06 - timing_s/total:60"
    """
    return " - ".join([f"step:{step}", *(f"{name}:{compact(value)}" for name, value in metrics.items())])


def sparkline(values: Sequence[float], *, is_plain: bool = False) -> str:
    """Shares as a small curve: [0, 0.5, 1] -> "▁▅█"."""
    bars = PLAIN_BARS if is_plain else BARS
    return "".join(bars[min(len(bars) - 1, int(min(1.0, max(0.0, value)) * len(bars)))] for value in values)


class Glance:
    """The few numbers of a run that people follow: success, kept groups, KL, entropy, length, pace, time left."""

    def __init__(
        self, total_steps: int | None, clock: Callable[[], float] = time.monotonic, *, resumed_step: int | None = None
    ) -> None:
        self.total_steps = total_steps
        self.step = resumed_step
        self.curve: deque[float] = deque(maxlen=CURVE_STEPS)
        """The success of the latest training steps."""
        self._clock, self._last_log = clock, clock()
        self._pace: deque[float] = deque(maxlen=PACE_STEPS)
        self._metrics: Mapping[str, float] = {}

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        now = self._clock()
        if step > 0:
            self._pace.append(now - self._last_log)
        self.step, self._metrics, self._last_log = step, metrics, now
        if successes := names.by_tag(metrics, names.TRAIN, names.SUCCESS):
            self.curve.append(fmean(successes.values()))

    @property
    def count(self) -> str:
        """step 3/20"""
        total = f"/{self.total_steps}" if self.total_steps else ""
        return f"step {self.step or 0}{total}"

    @property
    def success(self) -> list[str]:
        values = names.by_tag(self._metrics, names.TRAIN, names.SUCCESS)
        return [f"success {fmean(values.values()):.3f}"] if values else []

    def numbers(self) -> list[str]:
        """What the step logged beside its success."""
        metrics, parts = self._metrics, []
        if names.KEPT_COUNT in metrics:
            kept = metrics[names.KEPT_COUNT]
            parts.append(f"kept {kept:.0f}/{kept + metrics.get(names.DROPPED_COUNT, 0.0):.0f}")
        for word, choices in SHOWN.items():
            if value := [metrics[name] for name in choices if name in metrics][:1]:
                parts.append(f"{word} {value[0]:.3g}")
        if (length := names.join(names.TRAIN, names.RESPONSE_LENGTH)) in metrics:
            parts.append(f"length {metrics[length]:.0f}")
        return parts

    def pace(self) -> list[str]:
        """Seconds of a step, and the time that is left."""
        if not self._pace:
            return []
        mean = fmean(self._pace)
        left = duration(mean * max(0, self.total_steps - (self.step or 0))) if self.total_steps else ""
        return [f"{self._pace[-1]:.3g} s/step", *([f"{left} left"] if left else [])]


class ConsoleTracker:
    """A live display on a terminal; everywhere else, and with the style `full`, one line per step. Never both."""

    def __init__(
        self,
        *,
        total_steps: int | None = None,
        resumed_step: int | None = None,
        style: Style = "compact",
        output: Console = console,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = datetime.now,
        every_s: float = PULSE_S,
    ) -> None:
        self._output, self._style, self._clock, self._now = output, style, clock, now
        self._glance = Glance(total_steps, clock, resumed_step=resumed_step)
        self._validation: Estimate | None = None
        self._stage, self._stage_since = "starting", clock()
        self._episodes: tuple[int, int] | None = None
        self._live: Live | None = None
        if output.is_terminal and style == "compact":
            self._live = Live(console=output, get_renderable=self._render, refresh_per_second=4, transient=True)
            self._live.start()
        self._pulse: Pulse | None = None
        if self._live is None:
            self._pulse = Pulse(self._say_doing, every_s=every_s)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._glance.log(step, metrics)
        self._stage, self._episodes = "", None
        if self._style == "full":
            self.announce(step_line(step, metrics))
        elif self._live is None:
            self.announce(self._line())
        self._validation = None

    def log_table(self, step: int, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Tables are too long for a console; they lie in the run directory."""

    def validated(self, step: int, successes: Mapping[str, Estimate], overall: Estimate) -> None:
        """A validation: a line that stays, on a terminal; a part of the step's line elsewhere."""
        self._validation = overall
        if self._live is not None:
            listed = ", ".join(f"{tag} {success}" for tag, success in successes.items())
            self.announce(f"{self._now():%H:%M:%S} validation at step {step}: {listed}")

    def stage(self, name: str) -> None:
        self._stage, self._stage_since, self._episodes = name, self._clock(), None

    def begin_episodes(self, total: int) -> None:
        """So many episodes are being played."""
        self._episodes = (0, total)

    def end_episode(self) -> None:
        if self._episodes is not None:
            self._episodes = (self._episodes[0] + 1, self._episodes[1])

    def announce(self, text: str) -> None:
        """Lines that stay, above the live display."""
        if self._pulse is not None:
            self._pulse.postpone()
        if self._live is None:
            # Not through rich, which would fold a long line.
            self._output.file.write(f"{text}\n")
            self._output.file.flush()
        else:
            self._output.print(text, markup=False, highlight=False, emoji=False, soft_wrap=True)

    def close(self, status: str) -> None:
        if self._live is not None:
            self._live.stop()
        if self._pulse is not None:
            self._pulse.close()

    def _line(self) -> str:
        glance = self._glance
        validation = [f"val {self._validation}"] if self._validation is not None else []
        start = [f"{self._now():%Y-%m-%d %H:%M:%S}", glance.count, *glance.success, *validation]
        numbers, pace = glance.numbers(), glance.pace()
        while numbers and len("  ".join([*start, *numbers, *pace])) > MAX_LINE:
            numbers.pop()
        return "  ".join([*start, *numbers, *pace])

    def _render(self) -> RenderableType:
        glance, is_plain = self._glance, self._output.encoding.lower() not in ("utf-8", "utf8")
        progress = Table.grid(padding=(0, 2))
        bar = ProgressBar(total=glance.total_steps, completed=glance.step or 0, width=BAR_WIDTH)
        progress.add_row(glance.count, *([bar] if glance.total_steps else []), "  ".join(glance.pace()[::-1]))
        numbers = [f"{word} {sparkline(glance.curve, is_plain=is_plain)}" for word in glance.success]
        return Group(progress, *_fold([*numbers, *glance.numbers()], self._output.width), Text(self._doing()))

    def _say_doing(self) -> None:
        """A line in a log that says how far a long stage is."""
        if doing := self._doing():
            self.announce(f"{self._now():%Y-%m-%d %H:%M:%S}  {self._glance.count}  {doing}")

    def _doing(self) -> str:
        """now gen, 12/128 episodes, 3 s"""
        if not self._stage or self._stage == "step":
            return ""
        episodes = "" if self._episodes is None else f", {self._episodes[0]}/{self._episodes[1]} episodes"
        return f"now {self._stage}{episodes}, {duration(self._clock() - self._stage_since)}"


def _fold(parts: Sequence[str], width: int) -> list[Text]:
    """Parts in lines of at most `width` characters; no part is cut while it fits into a line."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + 2 + len(part) <= width:
            lines[-1] += f"  {part}"
        else:
            lines.append(part)
    return [Text(line, overflow="fold") for line in lines]
