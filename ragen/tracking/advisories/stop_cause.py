"""What lies behind an early stop: a rule says that a run cannot go on, the last steps say why.

form lost       nearly all replies are invalid, though at first most were valid, and those earned more
silence pays    the policy stops trying, because invalid replies earn as much
no form         the model never replied in the form that the prompt asks for
all fail        no episode succeeds, so that nothing is rewarded
few succeed     validation stays below its limit, though some episodes succeed
all solved      nothing is left to learn
strict filter   the rewards differ, but the filter keeps no group
no variance     the episodes of a group all earn the same
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ragen.tracking import names

RECENT_STEPS = 5
"""Steps, or validations, that are looked at; a collapse into silence takes about as many."""
SILENT_SHARE = 0.9
"""From this share of invalid turns on, nearly all are."""
HAS_FORM_SHARE = 0.5
"""Share of invalid turns up to which a model has the form."""
NOTICED_SHARE = 0.2
"""Below this share of invalid turns, what they earn explains nothing."""
NONE_SOLVED, ALL_SOLVED = 0.01, 0.99
"""Success up to which all fail, and from which all is solved."""
EQUAL_STD = 0.01
"""Mean deviation of the rewards of a group up to which they are equal."""

REMEDIES = {
    "form lost": "Training broke replies that paid, so the updates were too large: a smaller "
    "actor_rollout_ref.actor.optim.lr, a longer warm-up (lr_warmup_steps beside it), or a stronger hold on the "
    "reference (actor_rollout_ref.actor.use_kl_loss=True with a larger kl_loss_coef). Begin again, or with a "
    "checkpoint from before (trainer.resume_mode=resume_path).",
    "silence pays": "Make an invalid reply cost more than trying (es_manager.format_penalty), teach the model the form "
    "and the game first (`ragen sft`), choose easier levels, or allow fewer actions per turn "
    "(agent_proxy.max_actions_per_turn). `ragen check` shows what silence earns.",
    "no form": "Let the prompt show a finished answer (agent_proxy.example_answer, on by default), read its answers "
    "leniently (agent_proxy.answer_parsing=lenient), teach it the form with `ragen sft`, begin with a model that "
    "follows instructions, or give replies more room: actor_rollout_ref.rollout.response_length, and the tag's "
    "max_tokens where agent_proxy.enforce_max_tokens is True.",
    "all fail": "Begin with easier levels or with a model that was taught by `ragen sft`; `ragen check` shows what a "
    "random policy achieves on these levels.",
    "few succeed": "Begin with easier levels or a model that was taught by `ragen sft`, or be more patient: "
    "trainer.early_stop.low_success_patience.",
    "all solved": "Nothing is left to learn here: choose harder levels.",
    "strict filter": "Use a milder filter (actor_rollout_ref.rollout.rollout_filter_*), or levels on which some "
    "replies succeed and some fail.",
    "no variance": "The episodes of a group all earn the same, so no reply is better than another. More chance: a "
    "higher actor_rollout_ref.rollout.temperature, or a larger actor_rollout_ref.actor.entropy_coeff. To get there "
    "later: a smaller actor_rollout_ref.actor.optim.lr, or a stronger hold on the reference "
    "(actor_rollout_ref.actor.use_kl_loss=True with a larger kl_loss_coef).",
}
"""Cause -> what to do."""
OTHERWISE = {
    "reward_variance_collapse": "no variance",
    "empty_filtered_steps": "no variance",
    "low_validation_success": "few succeed",
}
"""Rule -> the cause where no other one shows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StopCause:
    """Why a run could not go on."""

    name: str
    """A key of REMEDIES."""
    evidence: str
    """The numbers that say so: a clause."""

    @property
    def remedy(self) -> str:
        return REMEDIES[self.name]


def find_stop_cause(rule: str, rows: Sequence[Mapping[str, Any]]) -> StopCause | None:
    """The cause behind a rule of early stopping, from the metrics of a run; None where they say nothing of success.

    Means are over the last validations where the rule is about them, else over the last steps.
    """
    is_validation = rule == "low_validation_success"
    rollout, word = (names.VALIDATION, "validation") if is_validation else (names.TRAIN, "step")
    played = [row for row in rows if names.by_tag(row, rollout, names.SUCCESS)]
    first, last = played[:RECENT_STEPS], played[-RECENT_STEPS:]
    if not last:
        return None
    tags = names.by_tag(last[-1], rollout, names.SUCCESS)
    if is_validation:  # one tag that stays low is enough for the rule
        tags = dict([min(tags.items(), key=lambda each: each[1])])

    def mean(metric: str, of: Sequence[Mapping[str, Any]] = last) -> float:
        return fmean(row.get(names.join(rollout, tag, metric), 0.0) for row in of for tag in tags)

    def mean_of_steps(name: str) -> float | None:
        values = [row[name] for row in rows[-RECENT_STEPS:] if name in row]
        return fmean(values) if values else None

    success, invalid, difference = mean(names.SUCCESS), mean(names.INVALID), mean_of_steps(names.VALID_MINUS_INVALID)
    when = f"in the last {len(last)} {word}s" if len(last) > 1 else f"in the last {word}"
    if (lost := how_form_was_lost(rows, invalid)) is not None:
        return StopCause(name="form lost", evidence=f"{when} {lost}")
    if has_no_form(at_first := mean(names.INVALID, first), invalid, difference):
        began = f"in the first {len(first)}" if len(first) > 1 else "in the first"
        return StopCause(name="no form", evidence=f"{when} {invalid:.0%} of turns were invalid, {began} {at_first:.0%}")
    if invalid >= SILENT_SHARE or earns_as_much(invalid, difference):
        evidence = f"{when} {invalid:.0%} of turns were invalid{what_they_earned(difference)}"
        return StopCause(name="silence pays", evidence=evidence)
    solved = f"{when} success was {success:.3f}"
    if success <= NONE_SOLVED:
        return StopCause(name="all fail", evidence=f"{solved}, with {1 - invalid:.0%} of turns valid")
    if success >= ALL_SOLVED:
        return StopCause(name="all solved", evidence=solved)
    std = mean_of_steps(names.IN_GROUP_REWARD_STD) or 0.0
    name = "strict filter" if rule == "empty_filtered_steps" and std > EQUAL_STD else OTHERWISE[rule]
    return StopCause(name=name, evidence=f"{solved} and the rewards of a group deviated by {std:.3f}")


def how_form_was_lost(rows: Sequence[Mapping[str, Any]], invalid: float) -> str | None:
    """Of a policy whose turns are nearly all invalid now: how it began, and that this did not pay, as a clause.

    None where most turns of the first rollout, before any update, were invalid, or where invalid replies earned as much
    when valid ones of the same groups were last beside them: then silence pays.
    """
    first = next((found for row in rows if (found := names.by_tag(row, names.TRAIN, names.INVALID))), {})
    differences = [row[names.VALID_MINUS_INVALID] for row in rows if names.VALID_MINUS_INVALID in row][-RECENT_STEPS:]
    if invalid < SILENT_SHARE or not first or not differences or fmean(differences) <= 0:
        return None
    at_first = fmean(first.values())
    if at_first > HAS_FORM_SHARE:
        return None
    beside = what_they_earned(fmean(differences))
    return f"{invalid:.0%} of the turns were invalid, in the first rollout {at_first:.0%}{beside}"


def has_no_form(at_first: float, invalid: float, difference: float | None) -> bool:
    """Whether nearly all turns were invalid from the first steps on: silence was not learned, the form never was.

    Unless valid replies of the same groups earn no more: then it will not be learned either.
    """
    return min(at_first, invalid) >= SILENT_SHARE and not earns_as_much(invalid, difference)


def earns_as_much(invalid: float, difference: float | None) -> bool:
    """Whether many turns are invalid and valid replies of the same groups earn no more."""
    return difference is not None and difference <= 0 and invalid >= NOTICED_SHARE


def what_they_earned(difference: float | None) -> str:
    """How valid and invalid replies compare, as the end of a clause."""
    if difference is None:
        return ", and no group had valid replies beside them"
    if difference == 0:
        return ", and valid replies of the same groups earned no more"
    return f", and valid replies of the same groups earned {abs(difference):.2f} {'more' if difference > 0 else 'less'}"
