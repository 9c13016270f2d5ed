"""Weights & Biases: online where there is a login and a network, otherwise offline by itself; it never asks.

`WANDB_MODE` and `wandb offline` are respected. An offline run lies in <run directory>/wandb and is sent later with
`wandb sync`. The run id is kept there, too, so that a resumed run continues the same W&B run.

Tested in tests/tracking/test_wandb_tracker.py.
"""

from __future__ import annotations

import os
import secrets
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ragen.config.load import to_dict
from ragen.errors import RagenError
from ragen.tracking.rundir import State, write_atomic

if TYPE_CHECKING:
    from ragen.tracking.tracker import RunFacts

Mode = Literal["online", "offline", "disabled", "shared"]

EXIT_CODES: dict[State, int] = {"finished": 0, "early_stopped": 0, "interrupted": 130, "failed": 1}

NETWORK_TIMEOUT = 5.0
"""Seconds that the W&B server has to answer before a run goes offline."""
START_TIMEOUT = 60.0


class WandbTracker:
    """A W&B run whose step axis is the training step."""

    def __init__(self, run: RunFacts) -> None:
        import wandb
        from wandb.errors import AuthenticationError, CommError

        wandb.setup(wandb.Settings(silent=True))
        run_id_file = run.path / "wandb" / "run_id.txt"
        is_resumed = run.resumed_step is not None and run_id_file.exists()
        run_id = run_id_file.read_text().strip() if is_resumed else secrets.token_hex(4)
        write_atomic(run_id_file, run_id + "\n")

        self._wandb = wandb
        self._data = run.path / "wandb" / "data"
        mode, why = _choose_mode(wandb)
        try:
            self._run = self._start(run, run_id=run_id, mode=mode, is_resumed=is_resumed)
        except AuthenticationError:
            raise
        except CommError as error:
            if mode != "online":
                raise
            mode, why = "offline", f"the server does not answer ({str(error).splitlines()[0]})"
            wandb.teardown()  # its service still holds the id of the run that did not start
            wandb.setup(wandb.Settings(silent=True))
            self._run = self._start(run, run_id=run_id, mode=mode, is_resumed=is_resumed)
        if mode == "offline":
            # Once; `silent` keeps wandb's own banner away.
            folder, here = Path(self._run.dir).parent, Path.cwd()
            folder = folder.relative_to(here) if folder.is_relative_to(here) else folder
            print(f"W&B is offline: {why}. Send the run later with: wandb sync {folder}", file=sys.stderr, flush=True)
        elif mode == "online" and self._run.url:
            print(f"W&B: {self._run.url}", file=sys.stderr, flush=True)

    def _start(self, run: RunFacts, *, run_id: str, mode: Mode, is_resumed: bool) -> Any:
        settings = self._wandb.Settings(silent=True, init_timeout=START_TIMEOUT)
        if sys.stdout.isatty() and "WANDB_CONSOLE" not in os.environ:
            settings.console = "off"  # the live line redraws itself; recorded it is noise
        return self._wandb.init(
            project=run.config.trainer.project_name,
            name=run.config.trainer.experiment_name,
            config=to_dict(run.config),
            dir=str(run.path),
            id=run_id,
            mode=mode,
            # Offline there is no server to ask; the same id joins the parts when they are sent.
            resume="allow" if is_resumed and mode == "online" else None,
            reinit="create_new",
            settings=settings,
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        # A row stays open until the next step, so tables of the same step join it in any order.
        self._run.log(dict(metrics), step=step)

    def log_table(self, step: int, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        table = self._wandb.Table(columns=list(columns), data=[list(row) for row in rows], allow_mixed_types=True)
        with _data_folder(self._data):
            self._run.log({name: table}, step=step)

    def close(self, status: State) -> None:
        self._run.summary["status"] = status
        self._run.finish(exit_code=EXIT_CODES.get(status, 1))


def _choose_mode(wandb: Any) -> tuple[Mode, str]:
    """The mode of the run and, for an offline one, the reason."""
    settings = wandb.setup().settings
    if settings.mode not in ("online", "run", "shared"):
        mode = "offline" if settings.mode == "dryrun" else settings.mode
        return mode, "WANDB_MODE or `wandb offline` says so"
    if not wandb.login(prompt=False, verify=False):
        why = "there is no login (`wandb login` makes one)"
    elif not _is_reachable(settings.base_url):
        why = f"{settings.base_url} cannot be reached"
    else:
        return "shared" if settings.mode == "shared" else "online", ""
    if demanded := os.environ.get("WANDB_MODE"):
        raise RagenError(f"WANDB_MODE asks for {demanded}, but {why}. Unset WANDB_MODE to run offline.")
    return "offline", why


@contextmanager
def _data_folder(path: Path) -> Iterator[None]:
    """wandb copies tables into a folder of the user's home, and an offline run refers to the copies there.

    They belong to the run; wandb reads the variable at each use.
    """
    before = os.environ.get("WANDB_DATA_DIR")
    os.environ["WANDB_DATA_DIR"] = before or str(path)
    try:
        yield
    finally:
        if before is None:
            del os.environ["WANDB_DATA_DIR"]


def _is_reachable(url: str) -> bool:
    """Any answer of the server counts; proxies of the environment are used, as wandb does."""
    try:
        urllib.request.urlopen(url, timeout=NETWORK_TIMEOUT).close()
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError):
        return False
    return True
