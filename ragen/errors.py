"""The few errors a user can meet; each message says what was expected, what arrived and what to do next."""

from __future__ import annotations

import errno
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ragen.streams import discard, leaving_with_readers, open_closed_streams, outliving_readers, show_everything
from ragen.text import printable

NOTHING_LEARNED = 3
"""Exit code of a training run that came to its end and learned nothing, because everything failed."""
INTERRUPTED = "Interrupted. The same command resumes from the newest checkpoint."


class RagenError(Exception):
    """Base of all errors that are reported to the user without a traceback."""


class ConfigError(RagenError):
    """A configuration value is unknown, of the wrong type, or contradicts another one."""


class MissingExtra(RagenError):
    """An optional package is needed; the message holds the install command."""


def install_command(extra: str) -> str:
    """How this installation gets an extra: from the repository, or, where a wheel was installed, by its name."""
    is_repository = (Path(__file__).resolve().parents[1] / "pyproject.toml").is_file()
    return f"pip install -e '.[{extra}]'" if is_repository else f"pip install 'ragen-agents[{extra}]'"


@contextmanager
def needing_extra(extra: str, what: str) -> Iterator[None]:
    """Imports within: where a package is missing, the error says `what` it is for and which extra brings it."""
    try:
        yield
    except ImportError as error:
        raise MissingExtra(f"{what}. Run: {install_command(extra)}") from error


class ModelUnavailable(RagenError):
    """A model can neither be found locally nor fetched."""


class FileError(RagenError):
    """A file is missing, cut short, or not what its name says."""


class ChatTemplateError(RagenError):
    """A chat template cannot be continued turn by turn."""


class WorkerError(RagenError):
    """A process of a run on several devices died, failed or hung; the message says which one, where and what to do."""


class EngineError(RagenError):
    """The engine that writes the replies failed: no memory, no endpoint, no answer."""


class NotFinite(RagenError):
    """Weights or gradients became NaN or infinite; the message says which, and where."""


class Interrupted(KeyboardInterrupt):
    """A signal ends the run: Ctrl-C, SIGTERM or SIGHUP. `note` says what was saved."""

    def __init__(self, number: int, note: str = "") -> None:
        super().__init__(number)
        self.number, self.note = number, note

    def __str__(self) -> str:
        return f"interrupted by {signal.Signals(self.number).name}" + (f": {self.note}" if self.note else "")


OF_THE_MACHINE = {
    errno.EACCES,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EIO,
    errno.EISDIR,
    errno.ELOOP,
    errno.EMFILE,
    errno.ENAMETOOLONG,
    errno.ENODEV,
    errno.ENOENT,
    errno.ENOSPC,
    errno.ENOTDIR,
    errno.ENXIO,
    errno.EPERM,
    errno.EROFS,
}
"""Errors of files and disks that no check before can rule out."""


def reporting_errors(
    command: Callable[[], int | None], *, interrupted: str = "Interrupted.", outlives_reader: bool = False
) -> int:
    """Run a command; an error a user can meet becomes one line and exit status 1, a signal one line
    and 128 + its number (Ctrl-C: 130).

    When whoever reads the output leaves (`| head`), the command ends quietly; with `outlives_reader` it continues.
    """
    open_closed_streams()
    show_everything()
    try:
        with outliving_readers() if outlives_reader else leaving_with_readers():
            return command() or 0
    except BrokenPipeError:
        discard(sys.stdout)
        return 0
    except RagenError as error:
        print(f"error: {printable(str(error))}", file=sys.stderr)
        return 1
    except OSError as error:
        if error.errno not in OF_THE_MACHINE:
            raise
        print(f"error: {printable(of_the_machine(error))}", file=sys.stderr)
        return 1
    except Interrupted as error:
        print(f"I{str(error)[1:]}.", file=sys.stderr)
        return 128 + error.number
    except KeyboardInterrupt:
        print(interrupted, file=sys.stderr)
        return 128 + signal.SIGINT


def of_the_machine(error: OSError) -> str:
    """A failed read or write in one line, with the file where the system names one."""
    where = f"{error.filename}: " if error.filename else ""
    remedy = (
        "Free some space." if error.errno in (errno.ENOSPC, errno.EDQUOT) else "Check the path and its permissions."
    )
    return f"{where}{error.strerror}. {remedy}"
