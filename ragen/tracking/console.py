"""What a person sees: progress bars on long work, tables at its end; quiet when nobody watches."""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

# A pipe has no width of its own; tables must not be cut there.
console = Console(width=None if sys.stdout.isatty() else 140)


class Advance(Protocol):
    def __call__(self, note: str = "") -> None: ...


@contextmanager
def progress(title: str, total: int) -> Iterator[Advance]:
    """A bar that counts to `total`; each call moves it by one. Nothing is drawn when the output is no terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(title, total=total, note="")

        def advance(note: str = "") -> None:
            bar.update(task, advance=1, note=note)

        yield advance


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table; the first column is text, the others are numbers. Narrow screens fold cells, nothing is cut."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def step_line(step: int, metrics: Mapping[str, float]) -> str:
    """The line of a step in a log file; sweeps and people search it.

    3, {"actor/lr": 1e-6, "timing_s/total": 60.0} -> "step:3 - actor/lr:1e-06 - timing_s/total:60"
    """
    return " - ".join([f"step:{step}", *(f"{name}:{compact(value)}" for name, value in metrics.items())])


def compact(value: float) -> str:
    """Six digits, which `float` reads back; long times and counts keep two decimals: 0.333333, 1e-06, 123456.79."""
    if math.isfinite(value) and 1e5 <= abs(value) < 1e15:
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return f"{value:.6g}"


def duration(seconds: float) -> str:
    """75 -> "1 min 15 s", 7260 -> "2 h 1 min"."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"


# Times that contain others, or are sums over steps: not stages of a step.
NO_STAGES = {"step", "train_step", "eval_step", "total"}


class Progression:
    """What the live line says: step, success, reward, kept groups, time left, time per stage."""

    def __init__(self, total_steps: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._total_steps = total_steps
        self._clock = clock
        self._summary = ["starting"]
        self._stages = ""
        self._stage = ""
        self._stage_since = self._last_log = clock()
        self._step_seconds: deque[float] = deque(maxlen=20)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        now = self._clock()
        if step > 0:
            self._step_seconds.append(now - self._last_log)
        self._last_log = now
        self._stage = ""
        self._summary = [f"step {step}" + (f"/{self._total_steps}" if self._total_steps else "")]
        for word in ("success", "reward"):
            values = [metrics[name] for name in metrics if _is_training_mean(name, word)]
            if values:
                self._summary.append(f"{word} {sum(values) / len(values):.3g}")
        if "rollout/filter_kept_count" in metrics:
            kept, ratio = metrics["rollout/filter_kept_count"], metrics.get("rollout/filter_kept_ratio", 0.0)
            num_groups = f"/{kept / ratio:.0f}" if ratio else ""
            self._summary.append(f"kept {kept:.0f}{num_groups} groups")
        if self._total_steps and self._step_seconds:
            mean = sum(self._step_seconds) / len(self._step_seconds)
            self._summary.append(f"{duration(mean * max(0, self._total_steps - step))} left")
        times = {name.removeprefix("timing_s/"): seconds for name, seconds in metrics.items() if "timing_s/" in name}
        stages = {name: t for name, t in times.items() if name not in NO_STAGES and not name.endswith("_total")}
        longest = sorted(stages.items(), key=lambda item: -item[1])
        self._stages = ", ".join(f"{name} {seconds:.3g} s" for name, seconds in longest if seconds >= 0.001)

    def stage(self, name: str) -> None:
        self._stage, self._stage_since = name, self._clock()

    def __str__(self) -> str:
        parts = list(self._summary)
        if self._stage and self._stage != "step":
            parts.append(f"now {self._stage} {duration(self._clock() - self._stage_since)}")
        return " · ".join([*parts, self._stages] if self._stages else parts)


def _is_training_mean(name: str, word: str) -> bool:
    """train/<tag>/success, but not train/<tag>/non-zero/success."""
    return name.startswith("train/") and name.count("/") == 2 and name.endswith(f"/{word}")


class ConsoleTracker:
    """One live line on a terminal; one line per step everywhere else. Never both."""

    def __init__(self, *, total_steps: int | None = None, output: Console = console) -> None:
        self._output = output
        self._progression = Progression(total_steps)
        self._live: Live | None = None
        if output.is_terminal:
            self._live = Live(console=output, get_renderable=self._render, refresh_per_second=2)
            self._live.start()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        if self._live is None:
            # Not through rich, which would fold a long line.
            print(step_line(step, metrics), file=self._output.file, flush=True)
        else:
            self._progression.log(step, metrics)

    def log_table(self, step: int, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Tables are too long for a console; they lie in the run directory."""

    def stage(self, name: str) -> None:
        self._progression.stage(name)

    def say(self, text: str) -> None:
        """Lines that stay, above the live line."""
        if self._live is None:
            print(text, file=self._output.file, flush=True)
        else:
            self._output.print(text, markup=False, highlight=False, emoji=False, soft_wrap=True)

    def close(self, status: str) -> None:
        if self._live is not None:
            self._progression.stage("")
            self._live.stop()

    def _render(self) -> Text:
        return Text(str(self._progression), no_wrap=True, overflow="ellipsis")
