"""Reads a run from the W&B server, with the login and the address that wandb uses (WANDB_API_KEY, WANDB_BASE_URL)."""

from __future__ import annotations

import json
import tempfile
from typing import Any

from ragen.errors import RagenError, needing_extra
from ragen.plotting.history import History, wandb_history

TIMEOUT = 60
"""Seconds for one request."""


def read_wandb_online(entity: str, project: str, run_id: str) -> History:
    """The history of the run entity/project/run_id; tables are fetched when they are asked for."""
    with needing_extra("wandb", "Reading a run at W&B needs wandb"):
        import wandb

    path = f"{entity}/{project}/{run_id}"
    wandb.setup(wandb.Settings(silent=True))
    try:
        if not wandb.login(prompt=False, verify=False):
            raise RagenError(
                f"There is no folder {path}, and for a run of that name there is no W&B login. Set WANDB_API_KEY "
                "or run `wandb login` (and WANDB_BASE_URL for a server of your own), "
                "or give a run directory or a wandb/offline-run-... folder."
            )
        run = wandb.Api(timeout=TIMEOUT).run(path)
        # The server's copy may grow between two calls; wandb's cache would hide that.
        rows, summary = list(run.scan_history(use_cache=False)), run.summary_metrics
    except (wandb.Error, ValueError, OSError) as error:
        raise RagenError(
            f"{path}: the W&B server does not give this run ({type(error).__name__}: {error}). "
            "Check the path, the login (WANDB_API_KEY) and the address (WANDB_BASE_URL)."
        ) from error

    def read_file(file: str) -> dict[str, Any]:
        try:
            with tempfile.TemporaryDirectory() as folder, run.file(file).download(root=folder) as downloaded:
                return json.load(downloaded)
        except (wandb.Error, OSError) as error:
            raise RagenError(
                f"{path}: the table {file} cannot be fetched ({type(error).__name__}: {error})."
            ) from error

    return wandb_history(run.name or "", run_id, rows, summary, read_file)
