"""A run as the rules see it, and what one of them has to say.

Tested in tests/tracking/advisories/test_rules.py.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from ragen.algorithms.statistics import Estimate
from ragen.files import flatten, read_yaml
from ragen.tracking import names
from ragen.tracking.advisories.evidence import Exhibit
from ragen.tracking.advisories.stop_cause import how_form_was_lost
from ragen.tracking.lock import is_killed
from ragen.tracking.rundir import read_metrics, read_status
from ragen.tracking.validation import mean_success, read_validation

Severity = Literal["alarm", "warning", "tip", "healthy"]

WINDOW = 10
"""Steps that a rule looks at, at the end of a run and at its beginning."""
SOME_KL = 0.01
"""A weight of the KL loss to begin with: that of config/real.yaml."""


@dataclass(frozen=True, slots=True)
class Advisory:
    """What one rule has to say."""

    rule: str
    severity: Severity
    certainty: float
    """From 0 to 1: how seldom the rule is wrong where it speaks."""
    evidence: str
    """A sentence with the numbers."""
    remedy: str
    steps: tuple[int, int]
    """The first and the last step that it looked at."""
    metrics: tuple[str, ...] = ()
    """The metrics behind it."""
    episodes: tuple[Exhibit, ...] = ()
    """Those to look at; `with_episodes` finds them."""

    def __str__(self) -> str:
        first, last = self.steps
        steps = f"steps {first} to {last}" if first < last else f"step {last}"
        title = self.rule if self.severity == "healthy" else f"{self.severity}: {self.rule}"
        return f"{title} ({self.certainty:.0%} sure, {steps}). {self.evidence} {self.remedy}".strip()


@dataclass(frozen=True, kw_only=True)
class Health:
    """A run as the rules see it."""

    rows: Sequence[Mapping[str, Any]]
    """The steps of metrics.jsonl."""
    config: Mapping[str, Any]
    """config.yaml, flat."""
    state: str = "unknown"
    """That of status.json; killed where it says running and the lock of the run is free."""
    reason: str = ""
    """Why it ended, of status.json."""
    updated_at: float | None = None
    """When the run wrote last, in seconds since 1970."""
    now: float = 0.0
    levels: Mapping[str, int] | None = None
    """Tag -> validation levels."""

    @cached_property
    def training(self) -> list[Mapping[str, Any]]:
        """The steps that trained, or tried to."""
        return [row for row in self.rows if names.by_tag(row, names.TRAIN, names.SUCCESS)]

    @cached_property
    def recent(self) -> list[Mapping[str, Any]]:
        return self.training[-WINDOW:]

    @cached_property
    def span(self) -> tuple[int, int]:
        """The steps of `recent`."""
        rows = self.recent or self.rows
        return (int(rows[0]["step"]), int(rows[-1]["step"])) if rows else (0, 0)

    def values(self, name: str) -> list[float]:
        """A metric at the steps that have it."""
        return [float(row[name]) for row in self.rows if isinstance(row.get(name), int | float)]

    def mean(self, name: str) -> float | None:
        """Of the last steps; None where they do not have it."""
        found = [float(row[name]) for row in self.recent if isinstance(row.get(name), int | float)]
        return fmean(found) if found else None

    def of_tags(self, metric: str, rows: Sequence[Mapping[str, Any]] | None = None) -> float:
        """A metric of training, over all environments and the last steps, or those given."""
        steps = self.recent if rows is None else rows
        found = [value for row in steps for value in names.by_tag(row, names.TRAIN, metric).values()]
        return fmean(found) if found else 0.0

    @cached_property
    def lost_form(self) -> str | None:
        """How the form of replies was lost, as a clause; None where it was not."""
        return how_form_was_lost(self.rows, self.of_tags(names.INVALID))

    @cached_property
    def invalid_at_first(self) -> float:
        """Share of invalid turns in the first steps."""
        return self.of_tags(names.INVALID, self.training[:WINDOW])

    @cached_property
    def validations(self) -> list[tuple[int, Estimate]]:
        """(step, success over all environments)"""
        found = [(int(row["step"]), mean_success(row, self.levels)) for row in self.rows]
        return [(step, success) for step, success in found if success is not None]

    @property
    def num_episodes(self) -> float | None:
        """Those of a step, with the groups that refilled it; as configured where earlier versions did not log them."""
        groups, size = (self.config.get(f"es_manager.train.{key}") for key in ("env_groups", "group_size"))
        configured = groups * size if isinstance(groups, int) and isinstance(size, int) else None
        return self.mean(names.join(names.TRAIN, names.EPISODES)) or configured

    @property
    def hold(self) -> str:
        """How the policy is held closer to the reference than it is."""
        coefficient = self.config.get("actor_rollout_ref.actor.kl_loss_coef")
        if not self.config.get("actor_rollout_ref.actor.use_kl_loss"):
            keys = "actor_rollout_ref.actor.use_kl_loss=True"
            # In base it is 0, with which the term would hold nothing.
            keys += "" if coefficient else f" actor_rollout_ref.actor.kl_loss_coef={SOME_KL}"
            return f"add a KL loss ({keys})"
        return f"raise actor_rollout_ref.actor.kl_loss_coef ({coefficient} now)"

    @property
    def cost_of_actions(self) -> str:
        """The key that says what an action costs; for environments that have none, the one that replaces the reward."""
        for tag in self.config.get("es_manager.train.env_configs.tags", ()):
            if self.config.get(f"custom_envs.{tag}.env_type") == "sokoban":
                return f"custom_envs.{tag}.env_config.step_reward"
        return "es_manager.reward_function"

    def advisory(
        self, rule: str, severity: Severity, certainty: float, evidence: str, remedy: str, *metrics: str
    ) -> Advisory:
        return Advisory(rule, severity, certainty, evidence, remedy, self.span, metrics)


def read_health(folder: Path, *, rows: Sequence[Mapping[str, Any]] | None = None, now: float | None = None) -> Health:
    """A run directory as the rules see it; `rows` are its metrics where they have been read already."""
    config, written = folder / "config.yaml", [folder / "metrics.jsonl", folder / "status.json"]
    times = [file.stat().st_mtime for file in written if file.is_file()]
    status = read_status(folder) if written[1].is_file() else {}
    state = status.get("state", "unknown")
    return Health(
        rows=read_metrics(folder) if rows is None else rows,
        config=flatten(read_yaml(config)) if config.is_file() else {},
        state="killed" if is_killed(folder, state) else state,
        reason=str(status.get("reason") or ""),
        updated_at=max(times, default=None),
        now=time.time() if now is None else now,
        levels=read_validation(folder).levels,
    )
