"""The few errors a user can meet; each message says what was expected, what arrived and what to do next."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable

NOTHING_LEARNED = 3
"""Exit code of a training run that came to its end and learned nothing, because everything failed."""
INTERRUPTED = "Interrupted. The same command goes on from the newest checkpoint."


class RagenError(Exception):
    """Base of all errors that are reported to the user without a traceback."""


class ConfigError(RagenError):
    """A configuration value is unknown, of the wrong type, or contradicts another one."""


class MissingExtra(RagenError):
    """An optional package is needed; the message holds the install command."""


class ModelUnavailable(RagenError):
    """A model can neither be found locally nor fetched."""


class ChatTemplateError(RagenError):
    """A chat template cannot be continued turn by turn."""


class WorkerError(RagenError):
    """A process of a run on several devices died, failed or hung; the message says which one, where and what to do."""


class EngineError(RagenError):
    """The engine that writes the replies failed: no memory, no endpoint, no answer."""


class Interrupted(KeyboardInterrupt):
    """A signal ends the run: Ctrl-C, SIGTERM or SIGHUP. `note` says what was saved."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number, self.note = number, ""

    def __str__(self) -> str:
        return f"interrupted by {signal.Signals(self.number).name}" + (f": {self.note}" if self.note else "")


def reporting_errors(command: Callable[[], int | None], *, interrupted: str = "Interrupted.") -> int:
    """Run a command; an error a user can meet becomes one line and exit status 1, a signal one line and
    128 + its number (Ctrl-C: 130)."""
    try:
        return command() or 0
    except RagenError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except Interrupted as error:
        print(f"I{str(error)[1:]}.\n{interrupted}", file=sys.stderr)
        return 128 + error.number
    except KeyboardInterrupt:
        print(interrupted, file=sys.stderr)
        return 128 + signal.SIGINT
