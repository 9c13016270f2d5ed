"""A run: its command, and whether it is done."""

from __future__ import annotations

from dataclasses import replace

import pytest

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
