"""What a person sees of a sweep: one table on a terminal, lines in a log."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ragen.sweeps.driving.scheduler import Phase, RunState
from ragen.tracking.console import console, duration

STYLES: dict[Phase, str] = {
    "queued": "dim",
    "running": "bold cyan",
    "done": "green",
    "done before": "green",
    "early stopped": "yellow",
    "failed": "bold red",
    "stopped": "magenta",
}
ROWS_FIRST: tuple[Phase, ...] = ("running", "failed", "stopped", "early stopped", "queued", "done", "done before")
"""Which rows are shown where the screen is too short for all."""


class TableView:
    """A table that redraws itself; it draws when told to, so that no thread is about when processes start."""

    def __init__(self, output: Console = console) -> None:
        self._live = Live(console=output, auto_refresh=False)
        self._height = output.height
        self._live.start()

    def show(self, states: Sequence[RunState]) -> None:
        self._live.update(draw_table(states, max_rows=max(3, self._height - 8)), refresh=True)

    def close(self) -> None:
        self._live.stop()


class LineView:
    """A line when a run starts, validates or ends."""

    def __init__(self, output: Console = console) -> None:
        self._output = output
        self._seen: dict[str, tuple[Phase, int | None]] = {}

    def show(self, states: Sequence[RunState]) -> None:
        for state in states:
            now = (state.phase, state.progress.validated_step)
            if state.phase != "queued" and self._seen.get(state.run.name) != now:
                # Not through rich, which would fold a long line.
                print(f"{time.strftime('%H:%M:%S')} {line_of(state)}", file=self._output.file, flush=True)
            self._seen[state.run.name] = now

    def close(self) -> None:
        pass


def make_view(output: Console = console) -> TableView | LineView:
    return TableView(output) if output.is_terminal else LineView(output)


def line_of(state: RunState) -> str:
    """sokoban_kl_sweep_nofilter_0-tiny: running, step 2 of 3, validation success 0.75, 1xCPU, 5 s"""
    parts = [state.phase]
    if state.progress.step is not None:
        parts.append(f"step {state.progress.step} of {state.run.total_steps}")
    if state.progress.success is not None:
        parts.append(f"validation success {state.progress.success:.3f}")
    parts += [part for part in (state.device, time_of(state), note_of(state)) if part]
    return f"{state.run.name}: {', '.join(parts)}"


def note_of(state: RunState) -> str:
    """Why a run stopped early, or the last lines of one that failed."""
    return state.outcome.stop or " / ".join(state.outcome.last_lines)


def draw_table(states: Sequence[RunState], *, max_rows: int) -> Group:
    """The runs, as many as fit, and how many there are of each kind."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("run", "state", "step", "val success", "time", "on", ""):
        is_number = name in ("step", "val success", "time")
        table.add_column(name, justify="right" if is_number else "left", overflow="fold", no_wrap=name == "state")
    by_need = sorted(range(len(states)), key=lambda i: ROWS_FIRST.index(states[i].phase))
    for index in sorted(by_need[:max_rows]):
        state = states[index]
        step, success = state.progress.step, state.progress.success
        table.add_row(
            state.run.name,
            Text(state.phase, style=STYLES[state.phase]),
            "" if step is None else f"{step}/{state.run.total_steps}",
            "" if success is None else f"{success:.3f}",
            time_of(state),
            state.device,
            Text(note_of(state), style="dim"),
        )
    counts = Counter(state.phase for state in states)
    summary = ", ".join(f"{counts[phase]} {phase}" for phase in ROWS_FIRST if counts[phase])
    hidden = f" ({len(states) - max_rows} not shown)" if len(states) > max_rows else ""
    return Group(table, Text(f"{len(states)} runs: {summary}{hidden}"))


def time_of(state: RunState) -> str:
    return "" if state.seconds is None else duration(state.seconds)
