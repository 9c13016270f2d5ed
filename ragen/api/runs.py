"""What a run directory holds, as lists of flat records that `pandas.DataFrame` takes as they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ragen.errors import RagenError
from ragen.files import read_yaml
from ragen.tracking.episodes import episode_files, episode_name, read_episodes, summary_of
from ragen.tracking.run_card import read_card
from ragen.tracking.rundir import read_records, read_status
from ragen.types import Episode

Record = dict[str, Any]


def load_run(path: str | Path) -> Run:
    """A run directory of training, evaluation or supervised training, whether it has ended or not.

    Examples:
        >>> run = load_run("checkpoints/ragen/first")                                      # doctest: +SKIP
        >>> run.status["state"], run.metrics[-1]["step"], len(run.episodes("val"))         # doctest: +SKIP
        ('finished', 50, 1536)
    """
    path = Path(path)
    if not (path / "config.yaml").is_file():
        raise RagenError(f"{path} is not a run directory: it holds no config.yaml. Give the folder of a run.")
    return Run(path)


@dataclass(frozen=True)
class Run:
    """What a run wrote. Files are read when they are first asked for."""

    path: Path

    @cached_property
    def config(self) -> Record:
        """The resolved configuration, nested as in YAML."""
        return dict(read_yaml(self.path / "config.yaml"))

    @cached_property
    def status(self) -> Record:
        """How the run stands and why: `state`, `reason`, `step`, `early_stop`, `seconds`, ..."""
        return read_status(self.path)

    @cached_property
    def card(self) -> Record:
        """What the run was, met and took, over all its resumes: `versions`, `counts`, `seconds`, `attempts`, ..."""
        return read_card(self.path)

    @cached_property
    def metrics(self) -> list[Record]:
        """A record per step: `step` and every metric that was logged with it. docs/metrics.md explains the names."""
        return read_records(self.path)

    def episodes(self, rollout: str = "", *, step: int | None = None) -> list[Record]:
        """A record per saved episode, without its texts: which level, how it ended, what it earned.

        Args:
            rollout: Only those of `train`, `val`, or of a policy of an evaluation such as `greedy`; empty: all.
            step: Only those of this step.
        """
        return [
            {"rollout": name, "step": at, "index": index, **summary_of(episode), "score": episode.score}
            for name, at, index, episode in self._read(rollout, step)
        ]

    def turns(self, rollout: str = "", *, step: int | None = None) -> list[Record]:
        """A record per turn of the saved episodes: what the model saw, thought, said and got. Arguments as above."""
        return [
            {
                "rollout": name,
                "step": at,
                "index": index,
                "tag": episode.tag,
                "seed": episode.seed,
                "turn": number,
                "observation": turn.observation,
                "user": turn.user,
                "text": turn.text,
                "thought": turn.thought,
                "actions": " || ".join(turn.actions),
                "reward": turn.reward,
                "penalty": turn.penalty,
                "num_tokens": len(turn.response_ids),
                **{f"info/{key}": value for key, value in turn.info.items()},
            }
            for name, at, index, episode in self._read(rollout, step)
            for number, turn in enumerate(episode.turns, start=1)
        ]

    def _read(self, rollout: str, step: int | None) -> Iterator[tuple[str, int | None, int, Episode]]:
        for file in episode_files(self.path):
            name, _, number = episode_name(file).partition("_step_")
            at = int(number) if number.isdecimal() else None
            if name.startswith(rollout) and step in (None, at):
                for index, episode in enumerate(read_episodes(file)):
                    yield name, at, index, episode
