"""What a person sees: progress bars on long work, or a line now and then in a log, and tables at its end."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any, Protocol

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

PULSE_S = 30.0
"""Seconds of long work after which a log gets a line that says how far it is."""


class PipedConsole(Console):
    """A console that leaves it to `reporting_errors` what follows when its reader has left."""

    def on_broken_pipe(self) -> None:
        raise  # Rich would exit with status 1 without a word.


# A pipe has no width of its own; tables must not be cut there.
# Nor does it read markup: what is printed comes from environments, servers and paths as well.
console = PipedConsole(width=None if sys.stdout and sys.stdout.isatty() else 140, markup=False, emoji=False)


class Advance(Protocol):
    def __call__(self, note: str = "") -> None: ...


class Pulse:
    """A thread that says every PULSE_S how far long work is, even while no part of it ends."""

    def __init__(self, say: Callable[[], None], *, every_s: float = PULSE_S) -> None:
        self._say, self._every_s, self._closed, self._spoken = say, every_s, Event(), Event()
        self._thread = Thread(target=self._run, name="ragen-pulse", daemon=True)
        self._thread.start()

    def postpone(self) -> None:
        """Something else was said."""
        self._spoken.set()

    def close(self) -> None:
        self._closed.set()
        self._spoken.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closed.is_set():
            if self._spoken.wait(self._every_s):
                self._spoken.clear()
                continue
            try:
                self._say()
            except (OSError, ValueError):  # whoever read has left, which the thread that works is told, too
                return


@contextmanager
def progress(title: str, total: int, *, output: Console = console, every_s: float = PULSE_S) -> Iterator[Advance]:
    """A bar that counts to `total`; each call moves it by one. Where no terminal shows it, a line every PULSE_S."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    started, num_done = time.monotonic(), 0

    def say() -> None:
        print(f"{title}: {num_done} of {total}, {duration(time.monotonic() - started)}", file=output.file, flush=True)

    with Progress(*columns, console=output, disable=not output.is_terminal, transient=True) as bar:
        task = bar.add_task(title, total=total, note="")

        def advance(note: str = "") -> None:
            nonlocal num_done
            num_done += 1
            bar.update(task, advance=1, note=note)

        pulse = None if output.is_terminal else Pulse(say, every_s=every_s)
        try:
            yield advance
        finally:
            if pulse is not None:
                pulse.close()


@contextmanager
def waiting(what: str, *, output: Console = console, every_s: float = PULSE_S) -> Iterator[None]:
    """Within: a line every PULSE_S says what is waited for, and how long by now."""
    started = time.monotonic()

    def say() -> None:
        print(f"{what}: {duration(time.monotonic() - started)} by now", file=output.file, flush=True)

    pulse = Pulse(say, every_s=every_s)
    try:
        yield
    finally:
        pulse.close()


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table; the first column is text, the others are numbers. Narrow screens fold cells, nothing is cut.

    Where nobody watches there are no blank lines, and no blanks at the end of a line.
    """
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as lines:
        console.print(table)
    # Rich fills every line up to the width of the table.
    kept = [line.rstrip() for line in lines.get().splitlines() if line.strip()]
    console.print("\n".join(kept), soft_wrap=True, markup=False, highlight=False)


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table in Markdown; line ends and bars in cells would break it."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(_cell(value) for value in line) + " |" for line in lines)


def _cell(value: Any) -> str:
    # Models may write lone surrogates, which no file can hold.
    text = str(value).encode(errors="replace").decode()
    return text.replace("|", "\\|").replace("\n", "<br>")


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


def counted(number: int, noun: str) -> str:
    """1 arm, 2 arms"""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
