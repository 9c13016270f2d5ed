"""The files of the real wandb, read without its server."""

import pytest

from ragen.errors import RagenError
from ragen.plotting.gradient_command import main
from ragen.plotting.history import read_history
from ragen.plotting.wandb_files import BLOCK, find_log
from tests.plotting.drawing import contents, ordered
from tests.plotting.synthetic import STEPS, tables


def test_the_files_of_wandb_give_the_same(wandb_folder, drawn, tmp_path, capsys):
    assert main(["--wandb-path", str(wandb_folder), "--step", "51", "--output-dir", str(tmp_path)]) == 0
    assert contents(tmp_path) == contents(drawn)
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / name) for name in ordered(51)]
    log = find_log(wandb_folder)
    assert log.stat().st_size > 2 * BLOCK, "records cross the ends of blocks"
    assert read_history(str(log)).steps == read_history(str(wandb_folder)).steps


def test_every_step_and_table_of_wandb_is_read(wandb_folder, run):
    found, expected = read_history(str(wandb_folder)), read_history(str(run))
    assert found.steps == expected.steps
    assert found.name == "my_run" and found.run_id == wandb_folder.name.rpartition("-")[2]
    for step in STEPS:
        for name in tables(step):
            assert found.load_table(step, name) == expected.load_table(step, name) != None  # noqa: E711
    assert found.load_table(10, "grad_norm/bucket_1/group_rv_table") is None
    summary = dict(found.summary)
    assert {name: summary[name] for name in expected.summary} == expected.summary


def test_a_wandb_file_that_was_cut_short_gives_what_is_whole(wandb_folder, tmp_path, caplog):
    whole = read_history(str(wandb_folder)).steps
    data = find_log(wandb_folder).read_bytes()
    log = tmp_path / "run-cut.wandb"
    log.write_bytes(data[: len(data) * 2 // 3])
    found = read_history(str(log)).steps
    assert 0 < len(found) < len(whole)
    assert found == {step: whole[step] for step in list(whole)[: len(found)]}
    assert "incomplete record" in caplog.text
    # A damaged byte is noticed by its checksum.
    log.write_bytes(data[: BLOCK + 500] + bytes([data[BLOCK + 500] ^ 1]) + data[BLOCK + 501 :])
    damaged = read_history(str(log)).steps
    assert damaged == {step: whole[step] for step in list(whole)[: len(damaged)]} and len(damaged) < len(whole)


def test_a_file_that_is_no_wandb_log_is_named(tmp_path):
    (tmp_path / "run-x.wandb").write_bytes(b"something else")
    with pytest.raises(RagenError, match=r"run-x.wandb is not a W&B log"):
        read_history(str(tmp_path))
