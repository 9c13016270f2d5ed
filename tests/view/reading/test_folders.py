"""Which runs there are."""

import os

import pytest

from ragen.errors import ConfigError
from ragen.view.reading.folders import Folders, NotThere, existing
from tests.view.runs import write_run


def test_runs_are_found_at_any_depth_and_inside_other_runs(tmp_path):
    for name in ("a", "deep/er/b", "a/validation_of_step_2"):
        write_run(tmp_path / name)
    (tmp_path / "empty").mkdir()
    write_run(tmp_path / "a" / "global_step_2" / "actor")  # no run begins in a checkpoint
    assert list(Folders([tmp_path]).entries()) == ["0/a", "0/a/validation_of_step_2", "0/deep/er/b"]


def test_a_folder_that_is_a_run_itself_is_one(tmp_path):
    write_run(tmp_path)
    assert Folders([tmp_path]).find("0/.").path == tmp_path


def test_a_run_below_two_folders_is_listed_once(tmp_path):
    write_run(tmp_path / "x" / "a")
    assert list(Folders([tmp_path, tmp_path / "x"]).entries()) == ["0/x/a"]


def test_links_out_of_the_folder_are_not_followed(tmp_path):
    write_run(tmp_path / "secret" / "a")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "secret")
    assert Folders([tmp_path / "runs"]).entries() == {}


@pytest.mark.parametrize("run_id", ["0/../secret", "0/a/../../secret", "/etc", "1/a", "", "0/a\0", "x"])
def test_an_id_is_no_path(tmp_path, run_id):
    write_run(tmp_path / "secret")
    write_run(tmp_path / "runs" / "a")
    with pytest.raises(NotThere, match="does not exist"):
        Folders([tmp_path / "runs"]).find(run_id)


def test_a_new_run_is_found_at_once_and_a_deleted_one_is_gone_soon(tmp_path):
    folders = Folders([tmp_path])
    assert folders.entries() == {}
    folder = write_run(tmp_path / "a")
    assert folders.find("0/a").path == folder
    folder.rename(tmp_path / ".hidden")
    assert folders.entries(is_fresh=True) == {}


def test_a_name_that_is_no_text_has_an_id_that_is(tmp_path):
    write_run(tmp_path / os.fsdecode(b"\xff"))
    assert list(Folders([tmp_path]).entries()) == ["0/\\xff"]


def test_without_folders_the_usual_ones_are_taken(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="none of the folders checkpoints, results"):
        existing([])
    (tmp_path / "results").mkdir()
    assert [str(folder) for folder in existing([])] == ["results"]
    with pytest.raises(ConfigError, match="nope does not exist"):
        existing([tmp_path / "nope"])
