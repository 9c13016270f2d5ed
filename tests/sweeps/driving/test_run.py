"""A run: its command, and whether it is done."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from ragen.sweeps.driving.results import write_result
from ragen.sweeps.driving.run import shell_line
from ragen.sweeps.driving.slots import Slot
from tests.sweeps.sweeping import script_run, work, writing


def test_gpu_ids_enter_the_command(tmp_path):
    run = script_run(tmp_path, "a", "import sys; print(sys.argv[1:])")
    run = replace(run, command=(*run.command, "system.CUDA_VISIBLE_DEVICES='{devices}'"))
    work([run], slots=[Slot(devices="4,5", size=2, label="2xH100")])
    assert run.log.read_text() == "[\"system.CUDA_VISIBLE_DEVICES='4,5'\"]\n"
    assert "\"system.CUDA_VISIBLE_DEVICES='4,5'\"" in run.command_file.read_text()
    assert run.is_last_command(), "on whatever GPUs"


def test_only_the_same_command_is_done(tmp_path):
    run = script_run(tmp_path, "a", writing(tmp_path / "runs/a", "finished"))
    assert not run.is_done()
    work([run])
    assert run.is_done()
    assert not replace(run, command=(*run.command, "--more")).is_done()
    (run.run_dir / "status.json").write_text('{"state": "running"}')
    assert not run.is_done()


def test_an_earlier_end_does_not_outlive_the_next_start(tmp_path):
    """A kill between start and first word of a run with another command must not make it look finished."""
    run = script_run(tmp_path, "a", writing(tmp_path / "runs/a", "finished"))
    work([run])
    run.begin("0")
    assert run.is_done(), "the same command has been run to its end, whatever becomes of this start"
    other = replace(run, command=(*run.command, "--more"))
    other.begin("0")
    assert not other.is_done()
    assert not run.result.exists() and not run.result_record.exists()
    other.begin("0")
    assert not other.is_done(), "nor after a second start"


def test_the_status_of_another_command_stays_with_its_run_and_counts_for_no_other(tmp_path):
    """The trainer moves the folder of the other run aside, with its status."""
    run = script_run(tmp_path, "a", writing(tmp_path / "runs/a", "finished"))
    work([run])
    silent = replace(run, command=(sys.executable, "-c", "pass"))
    outcomes, _, _ = work([silent])
    assert outcomes["a"].status == "fail", "it never said that it finished"
    assert (run.run_dir / "status.json").is_file()
    outcomes, _, _ = work([replace(run, command=(*run.command, "--more"))])
    assert outcomes["a"].status == "success"


def test_a_run_that_had_nothing_left_to_do_keeps_its_time(tmp_path):
    folder = tmp_path / "runs/a"
    once = f"import os, time\nif os.path.exists({str(folder / 'status.json')!r}): raise SystemExit\ntime.sleep(0.5)\n"
    run = script_run(tmp_path, "a", once + writing(folder, "finished"))
    first, _, _ = work([run])
    write_result(run, first["a"])
    again, _, _ = work([run])
    assert again == first and first["a"].wall_time > 0.5


@pytest.mark.parametrize(
    "words, line",
    [
        (["python", "a=1"], "python a=1"),
        (["a='0,1'"], "\"a='0,1'\""),
        (["a=b c"], "'a=b c'"),
    ],
)
def test_commands_can_be_typed(words, line):
    assert shell_line(words) == line
