"""One writer per run directory; tests/trainer/starting/test_folder.py holds two processes against each other."""

import json
import os

import pytest

from ragen.errors import ConfigError
from ragen.tracking import lock
from ragen.tracking.lock import LOCK, is_locked, run_lock


def test_a_process_may_take_its_folder_twice(tmp_path):
    with run_lock(tmp_path):
        with run_lock(tmp_path):
            pass
        assert json.loads((tmp_path / LOCK).read_text())["pid"] == os.getpid()
        assert tmp_path in lock._held
    assert tmp_path not in lock._held


def test_a_file_system_without_locks_is_warned_of_once(tmp_path, monkeypatch, capsys):
    def unsupported(*_: object) -> None:
        raise OSError(lock.errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock.fcntl, "flock", unsupported)
    monkeypatch.setattr(lock, "_without_locks", set())
    for name in ("a", "b"):
        with run_lock(tmp_path / name):
            pass
    assert capsys.readouterr().err.count("has no locks (No locks available)") == 1


def test_a_folder_that_cannot_be_written_is_no_traceback(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(ConfigError, match="cannot be written"), run_lock(tmp_path / "file"):
        pass


def test_a_reader_sees_whether_a_folder_is_held(tmp_path):
    assert is_locked(tmp_path) is None  # nobody ever took it
    with run_lock(tmp_path):
        assert is_locked(tmp_path) is True
    assert is_locked(tmp_path) is False
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]


def test_a_reader_who_looks_at_that_instant_keeps_no_run_out(tmp_path, monkeypatch):
    (tmp_path / LOCK).touch()
    reader = os.open(tmp_path / LOCK, os.O_RDONLY)
    lock.fcntl.flock(reader, lock.fcntl.LOCK_SH)
    monkeypatch.setattr(lock.time, "sleep", lambda _: os.close(reader))
    with run_lock(tmp_path):
        assert is_locked(tmp_path) is True
