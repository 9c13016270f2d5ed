"""The report at the end of a run: state, reason, validation before and after, folder, checkpoint, the next command.

Everything but the reason is read from the run directory, so that it can be made of a run that ended long ago.
"""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ragen.algorithms.statistics import Estimate
from ragen.config.schema import Config
from ragen.config.trainer import CONTINUING
from ragen.errors import NOTHING_LEARNED, Interrupted, RagenError
from ragen.files import finite, read_yaml, readable, value_at
from ragen.text import MAX_ERROR, safe
from ragen.tracking import names
from ragen.tracking.advisories.health import Advisory, read_health
from ragen.tracking.advisories.rules import advise, with_episodes
from ragen.tracking.advisories.stop_cause import OTHERWISE, REMEDIES, find_stop_cause
from ragen.tracking.rundir import State, read_metrics, read_status
from ragen.tracking.validation import read_validation, success_by_tag
from ragen.trainer.checkpoints.checkpoint import find_best, named_checkpoint
from ragen.trainer.endings.trouble import Signs, Trouble

MAX_REASON = 400
"""Characters of the message of an exception that is not ours."""
TITLES: dict[State, str] = {
    "finished": "Finished",
    "early_stopped": "Stopped early",
    "interrupted": "Interrupted",
    "failed": "Failed",
    "running": "Running",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Validated:
    """A validation of one environment."""

    tag: str
    step: int
    success: Estimate
    unseen: Estimate | None = None
    """On levels that training had not played by then; None where that is all of them."""

    def __str__(self) -> str:
        unseen = "" if self.unseen is None else f" (unseen levels: {self.unseen})"
        return f"{self.success} at step {self.step}{unseen}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cause:
    """Why a run ended."""

    state: State
    reason: str
    """A sentence, without a full stop."""
    early_stop: str | None = None
    """The rule that ended it."""
    diagnosis: str = ""
    """What lies behind the rule, by a name of stop_cause.py; empty where nothing is known of it."""
    trouble: Trouble = field(default_factory=Trouble)
    """What the last rollout looked like, where nothing could be learned from it, or what the rule found."""
    signal: int = signal.SIGINT
    """What interrupted it, if something did."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """The report at the end of a run."""

    cause: Cause
    exit_code: int
    step: int | None
    total_steps: int
    validations: Sequence[tuple[Validated, ...]]
    """[tags] The first and the last one, or the only one."""
    run_dir: Path
    checkpoint: Path | None
    best: Path | None
    """The checkpoint with the best validation, where it is kept and not the newest."""
    next_command: str
    advisories: Sequence[Advisory] = ()
    """What the numbers show beside the cause."""

    def __str__(self) -> str:
        cause = self.cause
        where = "" if self.step is None else f" at step {self.step}"
        if self.step is not None and self.step <= self.total_steps:  # a run that went further is asked for less now
            where += f" of {self.total_steps}"
        lines = [f"{TITLES[cause.state]}{where}: {cause.reason}."]
        rows = [("example", cause.trouble.example), ("what to do", cause.trouble.remedy)]
        rows += [("validation", f"{found[0].tag} {' -> '.join(map(str, found))}") for found in self.validations]
        for each in self.advisories:
            rows.append((each.severity, f"{each.rule}. {each.evidence} {each.remedy}"))
            rows += [("look at", str(exhibit)) for exhibit in each.episodes[:1]]
        rows += [
            ("run folder", str(self.run_dir)),
            ("checkpoint", str(self.checkpoint or "none (trainer.save_freq)")),
            ("best", str(self.best or "")),
            ("next", self.next_command),
        ]
        for name, text in rows:
            if text:
                lines.append(f"  {name + ':':<12}" + text.strip().replace("\n", "\n" + 14 * " "))
        return "\n".join(lines)

    def facts(self) -> dict[str, Any]:
        """What status.json says beside state, reason and step."""
        return {
            "exit_code": self.exit_code,
            "cause": self.cause.diagnosis,
            "example": self.cause.trouble.example,
            "remedy": self.cause.trouble.remedy,
            "validation": [
                [{"tag": v.tag, "step": v.step} | finite(asdict(v.success)) for v in found]
                for found in self.validations
            ],
            "checkpoint": str(self.checkpoint) if self.checkpoint else None,
            "best_checkpoint": str(self.best) if self.best else None,
            "next": self.next_command,
        }


# --- why a run ended ------------------------------------------------------------------------------------------------


def finished(reason: str = "all steps are done", *, signs: Signs | None = None) -> Cause:
    """The last step is done, or what was asked for; a trouble that the last rollout had is reported all the same."""
    trouble = signs.trouble if signs else None
    if trouble is None:
        return Cause(state="finished", reason=reason)
    state: State = "failed" if trouble.is_fault else "finished"
    return Cause(state=state, reason=f"{reason}, but {trouble.sentence}", trouble=trouble)


def past_the_end(step: int, total_steps: int) -> str:
    """Of a checkpoint, where fewer steps are asked for than it has."""
    return (
        f"the checkpoint is past trainer.total_training_steps={total_steps}, so nothing was trained: set it above "
        f"{step} to continue"
    )


def stopped(rule: str, config: Config, signs: Mapping[str, Signs], rows: Sequence[Mapping[str, Any]]) -> Cause:
    """An early stop in words: the rule, a trouble that the last rollout had, and the cause that the metrics show."""
    is_validation = rule == "low_validation_success"
    seen = signs.get("val" if is_validation and "val" in signs else "train")
    reason, trouble = _rule_sentence(rule, config), seen.trouble if seen else None
    if trouble is not None:
        reason += f", and in the last rollout {trouble.sentence}"
    else:
        example = "" if seen is None else seen.reply if is_validation else seen.rewards
        trouble = Trouble(kind=rule, example=example, remedy=REMEDIES[OTHERWISE[rule]])
    reason += f" ({rule})"
    cause = None if trouble.is_fault else find_stop_cause(rule, rows)
    if cause is not None:
        reason += f"; the cause: {cause.name} ({cause.evidence})"
        is_formless = trouble.kind == "reply_format" and cause.name == "silence pays"
        trouble = replace(trouble, remedy=f"{cause.remedy} {trouble.remedy}" if is_formless else cause.remedy)
    diagnosis = cause.name if cause else ""
    return Cause(state="early_stopped", reason=reason, early_stop=rule, diagnosis=diagnosis, trouble=trouble)


def left(step: int | None, note: str) -> Cause:
    """Whoever ran the steps in Python wanted no more of them; `note` says what was saved."""
    return Cause(state="interrupted", reason=f"left after step {step or 0} ({note})")


def _rule_sentence(rule: str, config: Config) -> str:
    stop = config.trainer.early_stop
    sentences = {
        "empty_filtered_steps": "the filter kept no group in "
        f"{config.actor_rollout_ref.rollout.rollout_filter_empty_stop_steps} steps in a row",
        "reward_variance_collapse": f"in {stop.variance_window} steps in a row the rewards within groups varied less "
        f"than {stop.variance_factor:g} times as much as in the first {stop.variance_baseline_steps} steps",
        "low_validation_success": f"validation success stayed below {stop.min_val_success:g} in "
        f"{stop.low_success_patience} validations in a row",
    }
    return sentences[rule]


def ended_by(error: BaseException) -> Cause:
    """An exception that ends a run."""
    if isinstance(error, KeyboardInterrupt):
        number = error.number if isinstance(error, Interrupted) else signal.SIGINT
        return Cause(state="interrupted", reason=str(error) or "interrupted by the user", signal=number)
    # Our own messages end with what to do; those of libraries may have any length.
    limit = MAX_ERROR if isinstance(error, RagenError) else MAX_REASON
    return Cause(state="failed", reason=safe(f"{type(error).__name__}: {error}", limit).rstrip("."))


# --- what the run directory says ------------------------------------------------------------------------------------


def compose(run_dir: Path, cause: Cause, *, step: int | None, total_steps: int) -> Ending:
    """The report of a run that ends now, or ended before."""
    rows: list[dict[str, Any]] = []
    validations: list[tuple[Validated, ...]] = []
    with suppress(RagenError, OSError):  # a damaged file must not hide how the run ended
        rows = read_metrics(run_dir)
        validations = read_validations(run_dir, rows)
    checkpoint, best = named_checkpoint(run_dir), find_best(run_dir)
    return Ending(
        cause=cause,
        exit_code=exit_code(cause, rows),
        step=step,
        total_steps=total_steps,
        validations=validations,
        run_dir=run_dir,
        checkpoint=checkpoint,
        best=best if best != checkpoint else None,
        next_command=next_command(run_dir, cause, rows, checkpoint),
        advisories=read_advisories(run_dir, cause, rows) if rows else (),
    )


def read_advisories(run_dir: Path, cause: Cause, rows: Sequence[Mapping[str, Any]]) -> list[Advisory]:
    """Alarms and warnings that the reason has not named; a run that just ended is not stalled."""
    with suppress(RagenError, OSError):
        found = advise(replace(read_health(run_dir, rows=rows), state=cause.state))
        is_told = {cause.diagnosis, "failed"}
        told = [each for each in found if each.severity in ("alarm", "warning") and each.rule not in is_told]
        return with_episodes(told, run_dir)
    return []


def read_ending(run_dir: Path, *, total_steps: int) -> Ending | None:
    """The report of a run that came to its end before; None where nothing says how."""
    if not (run_dir / "status.json").is_file():
        return None
    status = read_status(run_dir)
    cause = Cause(
        state=status["state"],
        reason=status["reason"] or "all steps are done",
        early_stop=status["early_stop"],
        diagnosis=status.get("cause", ""),
        trouble=Trouble(example=status.get("example", ""), remedy=status.get("remedy", "")),
    )
    ending = compose(run_dir, cause, step=status["step"], total_steps=total_steps)
    # Runs of earlier versions did not note these.
    return replace(ending, exit_code=status.get("exit_code", 0), next_command=status.get("next", ending.next_command))


def exit_code(cause: Cause, rows: Sequence[Mapping[str, float]]) -> int:
    """3 when nothing was learned because everything failed; else by state."""
    kind, is_lost = cause.trouble.kind, cause.trouble.is_fault
    if cause.state == "interrupted":
        return 128 + cause.signal
    if cause.state == "failed" and not is_lost:
        return 1
    training = [row[names.EMPTY_AFTER_FILTER] for row in rows if names.EMPTY_AFTER_FILTER in row]
    never_trained = bool(training) and all(training) and kind != "all_solved"
    is_formless = cause.state == "early_stopped" and kind == "reply_format"
    rollouts = (names.TRAIN, names.VALIDATION)
    never_solved = not any(any(names.by_tag(row, each, names.SUCCESS).values()) for row in rows for each in rollouts)
    return NOTHING_LEARNED if is_lost or never_trained or (is_formless and never_solved) else 0


def read_validations(run_dir: Path, rows: Sequence[Mapping[str, Any]]) -> list[tuple[Validated, ...]]:
    """The first and the last validation of each environment, with the interval over the levels."""
    levels = read_validation(run_dir).levels
    found: dict[str, list[Validated]] = {}
    for row in rows:
        for tag, each in success_by_tag(row, levels).items():
            unseen = each.unseen if each.is_mixed else None
            found.setdefault(tag, []).append(Validated(tag=tag, step=row["step"], success=each.success, unseen=unseen))
    return [tuple(each[:1] + each[1:][-1:]) for each in found.values()]


def next_command(run_dir: Path, cause: Cause, rows: Sequence[Mapping[str, float]], checkpoint: Path | None) -> str:
    """What to type next."""
    folder = shlex.quote(str(run_dir))
    kind = cause.trouble.kind
    if cause.state in ("interrupted", "failed") and not kind:
        if checkpoint is None:
            return f"{this_command()}   (starts over: no checkpoint was saved)"
        # The run's own command may not resume it, as that of `ragen demo`.
        mode = readable(lambda: value_at(read_yaml(run_dir / "config.yaml"), "trainer.resume_mode", run_dir), None)
        command = f"{this_command()} {CONTINUING.get(mode, '')}".rstrip()
        return f"{command}   (resumes from the checkpoint)"
    if cause.trouble.is_fault:
        return f"ragen show {folder} --status {kind} --limit 1"
    if rows and names.EXITED in rows[-1]:
        return f"ragen gradients plot {folder}"
    if kind in ("equal_rewards", "all_solved"):
        return f"ragen replay-filter {folder}"
    num_validations = sum(bool(success_by_tag(row)) for row in rows)
    is_drawn = num_validations > 1 and kind not in ("reply_format", "low_validation_success")
    return f"ragen {'plot' if is_drawn else 'show'} {folder}"


def this_command() -> str:
    """The command that runs, as one types it."""
    program, *arguments = sys.argv
    start = (
        "ragen"
        if Path(program).name == "ragen" or program.endswith("ragen/cli/__main__.py")
        else f"python {shlex.quote(program)}"
    )
    return f"{start} {shlex.join(arguments)}".strip()
