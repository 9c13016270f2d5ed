"""What is kept of rollouts: their episodes and tables, and the signs that the end of a run may have to explain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from ragen.algorithms.rollout_filter import FilterResult
from ragen.config.trainer import TrainerConfig
from ragen.seeding import fixed_hash
from ragen.tracking import names
from ragen.tracking.rundir import RunDir, read_table, table_steps
from ragen.tracking.tracker import Trackers
from ragen.tracking.validation import mean_success, success_by_tag
from ragen.trainer.endings.trouble import Signs, read_signs
from ragen.types import Episode, Metrics

GROUP_TABLE = names.join(names.FILTER, names.GROUP_TABLE)
"""Of all steps so far."""
Timer = Callable[[str], AbstractContextManager[None]]


class Recorder:
    """Writes episodes into the run directory, and tables to the trackers."""

    def __init__(self, config: TrainerConfig, trackers: Trackers, *, timer: Timer = nullcontext) -> None:
        self.config, self.trackers, self.timer = config, trackers, timer
        self.signs: dict[str, Signs] = {}
        """What the last training rollout (`train`) and the last validation rollout (`val`) looked like."""

    @contextmanager
    def training(self, step: int, episodes: Sequence[Episode]) -> Iterator[Callable[[], object]]:
        """Train on a rollout in here; what is given is called once its advantages are known.

        From then on the episodes are written in a thread, beside the update, and they are there in the end. Where
        something fails before, the episodes that it failed on are written all the same.
        """
        self._note_signs("train", episodes)
        every = self.config.save_episodes_every
        is_due = every > 0 and step % every == 0
        write = partial(self._write, "train", step, episodes, is_due=is_due, second=self.config.rollout_data_dir)
        writing: list[Future[None]] = []
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="episodes") as thread:
            try:
                yield lambda: writing.append(thread.submit(write))
            finally:
                with self.timer("write_episodes"):
                    (writing or [thread.submit(write)])[0].result()

    def record_validation(self, step: int, episodes: Sequence[Episode], metrics: Metrics) -> None:
        with self.timer("write_episodes"):
            self._write("val", step, episodes, is_due=True, second=self.config.validation_data_dir)
        self._note_signs("val", episodes)
        if (overall := mean_success(metrics)) is not None:
            by_env = {tag: each.success for tag, each in success_by_tag(metrics).items()}
            self.trackers.validated(step, by_env, overall)
        num_rows = self.config.generations_to_log_to_wandb.val
        if num_rows > 0:
            shown = sorted(episodes, key=lambda e: fixed_hash(e.seed, "shown", e.member))[:num_rows]
            rows = [[e.tag, e.seed, _conversation(e), e.score, e.is_success] for e in shown]
            self.trackers.log_table(step, "val/generations", ["tag", "seed", "conversation", "score", "success"], rows)

    def record_filter(self, step: int, kept: FilterResult) -> None:
        """The rewards of every group, and, on request, each group's deviation and fate in all steps so far."""
        if not kept.rewards:
            return
        columns = ["group_id", *(f"reward_{member}" for member in range(len(kept.rewards[0])))]
        rows = [[group_id, *rewards] for group_id, rewards in zip(kept.group_ids, kept.rewards, strict=True)]
        self.trackers.log_table(step, "rollout/reward_table", columns, rows)
        if self.config.log_group_rv_table:
            columns = ["step", "group_id", "reward_std", "selected"]
            stds = zip(kept.group_ids, kept.reward_stds, strict=True)
            rows = [[step, group_id, std, group_id in kept.kept_ids] for group_id, std in stds]
            self.trackers.log_table(step, GROUP_TABLE, columns, self._earlier_rows(step) + rows)

    def _earlier_rows(self, step: int) -> list[list[Any]]:
        """Those of GROUP_TABLE; read from the run directory, so that a resumed run continues them."""
        run = self.trackers.run.path
        earlier = [number for number in table_steps(run, GROUP_TABLE) if number < step]
        return read_table(run, GROUP_TABLE, max(earlier))[1] if earlier else []

    def _write(self, kind: str, step: int, episodes: Sequence[Episode], *, is_due: bool, second: str | None) -> None:
        """Into the run directory, compressed, and as plain JSON lines into a second folder where one is named."""
        if is_due:
            self.trackers.run.write_episodes(f"{kind}_step_{step}", episodes)
        if second:
            RunDir(Path(second)).write_episodes(f"{kind}_step_{step}", episodes, is_compressed=False)

    def _note_signs(self, kind: str, episodes: Sequence[Episode]) -> None:
        """Episodes that are all lost are worth a message at once."""
        before, signs = self.signs.get(kind), read_signs(episodes)
        self.signs[kind] = signs
        if signs.trouble is not None and signs.trouble.is_fault and (before is None or before.trouble is None):
            self.trackers.announce(f"{kind}: {signs.trouble}")


def _conversation(episode: Episode) -> str:
    return "\n".join(f"[{message['role']}]\n{message['content']}" for message in episode.messages())
