"""What a person sees of runs."""

from __future__ import annotations

import io

from rich.console import Console

from ragen.sweeps.driving.view import TableView, make_view
from tests.sweeps.sweeping import SLOTS, quiet, runs_of_all_kinds, work


def test_lines_tell_starts_validations_and_ends(tmp_path):
    output = quiet()
    work(runs_of_all_kinds(tmp_path)[:3], slots=SLOTS[:1], view=make_view(output))
    text = output.file.getvalue()  # type: ignore[attr-defined]
    assert "good: running, 1xH100" in text
    assert "good: done, step 3 of 3, validation success 0.750, 1xH100" in text
    assert "early: early stopped, step 3 of 3" in text and "reward_variance_collapse" in text
    assert "bad: failed, 1xH100" in text and "about to fail / no such model" in text


def test_a_terminal_shows_a_table(tmp_path):
    output = Console(file=io.StringIO(), width=160, height=30, force_terminal=True, color_system=None)
    view = make_view(output)
    assert isinstance(view, TableView)
    work(runs_of_all_kinds(tmp_path), view=view)
    last = output.file.getvalue().split("val success")[-1]  # type: ignore[attr-defined]
    rows = {line.split()[0]: line for line in last.splitlines() if line.strip()}
    assert "done" in rows["good"] and "3/3" in rows["good"] and "0.750" in rows["good"]
    assert "early stopped" in rows["early"] and "reward_variance_collapse" in rows["early"]
    assert "failed" in rows["bad"] and "no such model" in rows["bad"]
    assert "6 runs: 3 failed, 1 early stopped, 2 done" in last


def test_a_short_screen_shows_what_matters(tmp_path):
    output = Console(file=io.StringIO(), width=160, height=11, force_terminal=True, color_system=None)
    work(runs_of_all_kinds(tmp_path), view=make_view(output))
    last = output.file.getvalue().split("val success")[-1]  # type: ignore[attr-defined]
    assert all(name in last for name in ("bad", "silent", "liar"))
    assert "good" not in last and "(3 not shown)" in last
