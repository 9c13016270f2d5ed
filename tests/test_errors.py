"""How a command ends: its exit status, and one line for what a user can meet."""

import errno

import pytest

from ragen.errors import ConfigError, MissingExtra, install_command, needing_extra, reporting_errors


def failing_with(error: BaseException):
    def command() -> None:
        raise error

    return command


def test_a_command_ends_with_its_own_status_or_success():
    assert reporting_errors(lambda: None) == 0
    assert reporting_errors(lambda: 3) == 3


def test_mistakes_and_interruptions_are_one_line(capsys):
    assert reporting_errors(failing_with(ConfigError("a is 1. Set it to 2."))) == 1
    assert reporting_errors(failing_with(KeyboardInterrupt()), interrupted="Interrupted. Go on with b.") == 130
    assert capsys.readouterr().err == "error: a is 1. Set it to 2.\nInterrupted. Go on with b.\n"


def test_a_defect_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError):
        reporting_errors(failing_with(ZeroDivisionError()))


def test_a_full_disk_and_a_missing_file_are_one_line(capsys):
    assert reporting_errors(failing_with(OSError(errno.ENOSPC, "No space left on device"))) == 1
    assert reporting_errors(failing_with(FileNotFoundError(errno.ENOENT, "No such file or directory", "a/b"))) == 1
    assert capsys.readouterr().err == (
        "error: No space left on device. Free some space.\n"
        "error: a/b: No such file or directory. Check the path and its permissions.\n"
    )


def test_a_missing_package_is_named_with_the_extra_that_brings_it():
    with (
        pytest.raises(MissingExtra, match=r"^Figures need it\. Run: pip install -e '\.\[plot\]'$"),
        needing_extra("plot", "Figures need it"),
    ):
        import no_such_package  # noqa: F401


def test_a_wheel_gets_its_extras_by_name(tmp_path, monkeypatch):
    assert install_command("plot") == "pip install -e '.[plot]'"
    monkeypatch.setattr("ragen.errors.__file__", str(tmp_path / "ragen" / "errors.py"))
    assert install_command("plot") == "pip install 'ragen-agents[plot]'"
