"""A reader who leaves ends commands that print, and not those that work."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from ragen.streams import READER_GONE

REPOSITORY = Path(__file__).parents[1]

WORK = """
import sys
from ragen.errors import reporting_errors
from ragen.tracking.console import print_table
def work():
    for number in range(3):
        sys.stdin.readline()
        if sys.argv[2] == "table":
            print_table("", ["x" * 70_000], [])
        else:
            print("x" * 70_000, flush=True)
    open(sys.argv[1], "w").write("done")
sys.exit(reporting_errors(work, outlives_reader=sys.argv[2] == "long"))
"""


def run(out: Path, kind: str, *, has_stderr: bool) -> tuple[int, str]:
    """Exit status and standard error of a program whose reader leaves after the first characters."""
    child = subprocess.Popen(
        [sys.executable, "-c", WORK, out, kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if has_stderr else subprocess.STDOUT,
        cwd=REPOSITORY,
        text=True,
    )
    assert child.stdin and child.stdout
    child.stdin.write("go\n")
    child.stdin.flush()
    child.stdout.read(10)
    child.stdout.close()
    child.stdin.write("go\ngo\n")
    child.stdin.close()
    said = ""
    if child.stderr:
        with child.stderr:
            said = child.stderr.read()
    return child.wait(timeout=60), said


def test_long_work_outlives_its_reader_and_says_so_once(tmp_path: Path):
    assert run(tmp_path / "a", "long", has_stderr=True) == (0, READER_GONE + "\n")
    assert run(tmp_path / "b", "long", has_stderr=False) == (0, "")
    assert (tmp_path / "a").exists() and (tmp_path / "b").exists()


def test_long_work_outlives_the_terminal_it_was_started_in(tmp_path: Path):
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", WORK, tmp_path / "a", "long"],
        stdin=subprocess.PIPE,
        stdout=theirs,
        stderr=theirs,
        cwd=REPOSITORY,
    )
    assert child.stdin
    os.close(theirs)
    child.stdin.write(b"go\n")
    child.stdin.flush()
    os.read(ours, 10)
    os.close(ours)
    child.stdin.write(b"go\ngo\n")
    child.stdin.close()
    assert child.wait(timeout=60) == 0
    assert (tmp_path / "a").exists()


@pytest.mark.parametrize("kind", ["long", "short"])
def test_work_is_done_without_any_standard_stream(tmp_path: Path, kind: str):
    # `exec` leaves the descriptors closed, as some schedulers do; Python has no streams then.
    shell = 'exec "$0" -c "$1" "$2" "$3" 0<&- 1>&- 2>&-'
    command = ["sh", "-c", shell, sys.executable, WORK, tmp_path / "a", kind]
    assert subprocess.run(command, cwd=REPOSITORY, timeout=60).returncode == 0
    assert (tmp_path / "a").exists()


@pytest.mark.parametrize("kind", ["short", "table"])
def test_a_command_that_prints_ends_quietly_with_its_reader(tmp_path: Path, kind: str):
    assert run(tmp_path / "a", kind, has_stderr=True) == (0, "")
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("arguments", ["reproduce all --plan", "reproduce --list", "train --help"])
def test_a_long_command_that_only_prints_does_not_speak_of_work(arguments: str):
    child = subprocess.Popen(
        [sys.executable, "-m", "ragen.cli", *arguments.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=REPOSITORY,
    )
    assert child.stdout and child.stderr
    child.stdout.read(1)
    child.stdout.close()
    with child.stderr:
        assert child.stderr.read() == b""
    assert child.wait(timeout=60) == 0


def test_what_is_left_to_print_at_the_end_is_no_work():
    code = """
import sys
from ragen.errors import reporting_errors
def work():
    print("a", flush=True)
    sys.stdin.readline()
    print("b")
sys.exit(reporting_errors(work, outlives_reader=True))
"""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=REPOSITORY,
        env=environment,
        text=True,
    )
    assert child.stdin and child.stdout and child.stderr
    child.stdout.read(1)
    child.stdout.close()
    child.stdin.close()
    with child.stderr:
        assert child.stderr.read() == ""
    assert child.wait(timeout=60) == 0


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_letters_that_a_terminal_lacks_are_escaped(encoding: str):
    code = "from ragen.errors import reporting_errors; reporting_errors(lambda: print('a √'))"
    environment = os.environ | {"PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "a \\u221a\n")
