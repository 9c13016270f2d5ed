"""What the numbers of a run say about its health: one function for each rule, all of them in RULES.

Whoever reads a run may ask: `ragen diagnose RUN`, the report at the end of a training, the live page. A rule looks at
the last steps, beside the first ones where it is about a change, and answers with its evidence, how sure it is and what
to do; or with None. One more rule is a function, its line in RULES and in docs/training.md, and a case of
tests/tracking/advisories/test_rules.py: a run that has it and one that has not. Which episodes show it, evidence.py
says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from ragen.config.trainer import how_to_resume
from ragen.text import safe
from ragen.tracking import names
from ragen.tracking.advisories.evidence import find_exhibits
from ragen.tracking.advisories.health import WINDOW, Advisory, Health, Severity
from ragen.tracking.advisories.stop_cause import (
    ALL_SOLVED,
    EQUAL_STD,
    NONE_SOLVED,
    REMEDIES,
    SILENT_SHARE,
    earns_as_much,
    has_no_form,
    what_they_earned,
)
from ragen.tracking.lock import KILLED

ORDER: tuple[Severity, ...] = ("alarm", "warning", "tip", "healthy")

FEWEST = 5
"""Steps below which nothing is said about training."""
LOST = 0.1
"""Share of its first value below which a measure has collapsed."""
LITTLE_ENTROPY = 0.1
"""Nats per token below which replies hardly differ any more."""
MISMATCH, LARGE_MISMATCH = 0.02, 0.1
"""Mean distance of log-probs between engine and trainer that is noticed, and that spoils training. In bfloat16 0.005 to
0.01 are usual."""
RESPONSE_LENGTH = "actor_rollout_ref.rollout.response_length"
CUT_SHARE = 0.1
"""Share of replies or episodes that a limit may cut."""
ONE_ACTION, MORE_ACTIONS = 1.1, 1.2
"""Actions of a turn up to which it has one, and from which it had more."""
OUT_OF_TURNS_SHARE = 0.5
"""From this share of the episodes on, turns are what they have too few of."""
DIVIDED = {"grpo", "brpo", "gigpo"}
"""Estimators that norm_adv_by_std_in_grpo is for."""
FULL_MEMORY = 0.95
STALLED_S, STALLED_STEPS = 600.0, 5.0
"""A run that wrote nothing for so many seconds, and for so many of its steps, is stalled."""


def form_lost(run: Health) -> Advisory | None:
    """Hardly a reply is valid any more, though valid ones earned more."""
    if len(run.recent) < FEWEST or run.lost_form is None:
        return None
    metrics = names.join(names.TRAIN, names.FORMAT_VALID), names.VALID_MINUS_INVALID
    return run.advisory("form lost", "alarm", 0.8, f"{run.lost_form}.", REMEDIES["form lost"], *metrics)


def silence_pays(run: Health) -> Advisory | None:
    """Invalid replies earn as much as valid ones, or hardly anything else is left."""
    if len(run.recent) < FEWEST or run.lost_form is not None:
        return None
    invalid, difference = run.of_tags(names.INVALID), run.mean(names.VALID_MINUS_INVALID)
    pays = earns_as_much(invalid, difference)
    if (not pays and invalid < SILENT_SHARE) or has_no_form(run.invalid_at_first, invalid, difference):
        return None
    certainty = 0.9 if pays else 0.7
    evidence = f"{invalid:.0%} of the turns were invalid{what_they_earned(difference)}."
    metrics = names.VALID_MINUS_INVALID, names.join(names.TRAIN, names.FORMAT_VALID)
    return run.advisory("silence pays", "alarm", certainty, evidence, REMEDIES["silence pays"], *metrics)


def no_form(run: Health) -> Advisory | None:
    """The model never replied in the form that the prompt asks for."""
    invalid, difference = run.of_tags(names.INVALID), run.mean(names.VALID_MINUS_INVALID)
    if len(run.recent) < FEWEST or not has_no_form(run.invalid_at_first, invalid, difference):
        return None
    evidence = f"{invalid:.0%} of the turns were invalid, at first {run.invalid_at_first:.0%}."
    metric = names.join(names.TRAIN, names.FORMAT_VALID)
    return run.advisory("no form", "alarm", 0.9, evidence, REMEDIES["no form"], metric)


def all_fail(run: Health) -> Advisory | None:
    """No episode succeeds."""
    success, invalid = run.of_tags(names.SUCCESS), run.of_tags(names.INVALID)
    if len(run.recent) < FEWEST or success > NONE_SOLVED or invalid >= SILENT_SHARE:
        return None
    evidence = f"Success was {success:.3f}, with {1 - invalid:.0%} of the turns valid."
    return run.advisory("all fail", "alarm", 0.9, evidence, REMEDIES["all fail"])


def no_variance(run: Health) -> Advisory | None:
    """The members of a group earn the same, though not all is solved."""
    name = names.IN_GROUP_REWARD_STD
    values, success = run.values(name), run.of_tags(names.SUCCESS)
    if len(run.recent) < FEWEST or not values or success <= NONE_SOLVED or success >= ALL_SOLVED:
        return None
    now, before = fmean(values[-WINDOW:]), fmean(values[:WINDOW])
    if now > max(EQUAL_STD, LOST * before if len(run.training) >= 2 * WINDOW else 0.0):
        return None
    evidence = f"The rewards of a group deviate by {now:.3f}, at first by {before:.3f}; success is {success:.2f}."
    return run.advisory("no variance", "alarm", 0.9, evidence, REMEDIES["no variance"], name)


def all_solved(run: Health) -> Advisory | None:
    """Nothing is left to learn."""
    success = run.of_tags(names.SUCCESS)
    if len(run.recent) < FEWEST or success < ALL_SOLVED:
        return None
    return run.advisory("all solved", "tip", 0.9, f"Success in training is {success:.3f}.", REMEDIES["all solved"])


def template_collapse(run: Health) -> Advisory | None:
    """Thoughts still vary, but say nothing about their prompt: high entropy, low mutual information."""
    for turns in (names.FIRST_TURNS, names.ANY_TURNS):
        information, entropy, retrieval, chance = (
            run.values(names.collapse(turns, metric))
            for metric in ("mi_estimate", "reasoning_entropy_est", "retrieval_accuracy", "retrieval_chance_level")
        )
        if len(information) < 3 or not retrieval:
            continue
        is_gone = information[-1] <= LOST * max(information[:-1]) and entropy[-1] >= 0.5 * entropy[0]
        is_guess = retrieval[-1] <= 1.5 * chance[-1] and max(retrieval[:-1]) >= 3 * chance[0]
        if not is_gone and not is_guess:
            continue
        evidence = (
            f"Mutual information of prompt and thought is {information[-1]:.3f} nats per token, at most it was "
            f"{max(information):.3f}; a thought finds its own prompt {retrieval[-1]:.0%} of the time (guessing: "
            f"{chance[-1]:.0%}), and the entropy of thoughts is {entropy[-1]:.2f}, at first {entropy[0]:.2f}."
        )
        return run.advisory(
            "template collapse",
            "alarm",
            0.9 if is_gone and is_guess else 0.6,
            evidence,
            "Keep groups whose rewards vary (actor_rollout_ref.rollout.rollout_filter_value=0.9), "
            f"{run.hold}, or go back to a checkpoint from before.",
            names.collapse(turns, "mi_estimate"),
            names.collapse(turns, "retrieval_accuracy"),
        )
    return None


def entropy_collapse(run: Health) -> Advisory | None:
    """The policy hardly varies its replies any more."""
    # What sums over tokens is no entropy of a token: it falls with the length of the replies.
    mode = str(run.config.get("actor_rollout_ref.actor.loss_agg_mode"))
    is_sum = mode.startswith("seq-mean-token-sum")
    for name in (names.turn_entropy(1),) if is_sum else names.ENTROPIES:
        values = run.values(name)
        if len(values) < 2 * WINDOW:
            continue
        now, before = fmean(values[-WINDOW:]), fmean(values[:WINDOW])
        if now >= LITTLE_ENTROPY or now > 2 * LOST * before:
            return None
        solved = run.of_tags(names.SUCCESS) >= 0.9
        evidence = f"The entropy of a token fell from {before:.2f} to {now:.3f} nats."
        divides = run.config.get("algorithm.adv_estimator") in DIVIDED
        is_divided = divides and run.config.get("algorithm.norm_adv_by_std_in_grpo", True)
        division = ", do not divide by the deviation of a group (algorithm.norm_adv_by_std_in_grpo=False)"
        remedy = (
            f"That ends learning by trial: lower actor_rollout_ref.actor.optim.lr, {run.hold}"
            f"{division if is_divided else ''}, or raise actor_rollout_ref.actor.entropy_coeff a little."
        )
        return run.advisory("entropy collapse", "tip" if solved else "warning", 0.8, evidence, remedy, name)
    return None


def few_actions(run: Health) -> Advisory | None:
    """One action a turn is left, and turns run out: a cost of actions was learned before the task."""
    num_episodes, most = run.num_episodes, run.config.get("agent_proxy.max_turn")
    if not num_episodes or len(run.training) < 2 * WINDOW or run.lost_form is not None:
        return None

    def actions_of_a_turn(rows: Sequence[Mapping[str, Any]]) -> float:
        """Only of turns that hold some: where the form of replies is lost, others go without."""
        actions = turns = 0.0
        for row in rows:
            invalid = names.by_tag(row, names.TRAIN, names.INVALID)
            actions += sum(names.by_tag(row, names.TRAIN, "num_actions").values())
            for tag, num_turns in names.by_tag(row, names.TRAIN, "num_turns").items():
                turns += num_turns * (1 - invalid.get(tag, 0.0))
        return actions / turns if turns else 0.0

    before, now = actions_of_a_turn(run.training[:WINDOW]), actions_of_a_turn(run.recent)
    name = names.join(names.TRAIN, names.TRUNCATION, "turn_cap")
    share = (run.mean(name) or 0.0) / num_episodes
    if before < MORE_ACTIONS or now > ONE_ACTION or share < OUT_OF_TURNS_SHARE:
        return None
    evidence = (
        f"A valid turn has {now:.1f} actions, at first {before:.1f}, and {share:.0%} of the episodes end because they "
        f"are out of turns (agent_proxy.max_turn={most})."
    )
    metric = "actor_rollout_ref.rollout.rollout_filter_metric"
    outcome = f"drop groups in which nothing is solved ({metric}=success_variance), "
    remedy = (
        "Where each action costs something, fewer of them are learned before the task is: "
        f"{'' if run.config.get(metric) == 'success_variance' else outcome}take the cost out of the reward "
        f"({run.cost_of_actions}), {run.hold}, raise agent_proxy.max_turn, or begin with easier levels or `ragen sft`."
    )
    return run.advisory("few actions", "warning", 0.7, evidence, remedy, name)


def critic_useless(run: Health) -> Advisory | None:
    """The values explain nothing of the returns."""
    name = names.EXPLAINED_VARIANCE
    values = run.values(name)
    explained = fmean(values[-WINDOW:] or [0.0])
    if len(values) < 2 * WINDOW or explained > 0.02:
        return None
    evidence = f"The critic's values explain {explained:z.2f} of the variance of the returns; 0 is the mean alone."
    remedy = "Raise critic.optim.lr, warm it up (trainer.critic_warmup=10), or use algorithm.adv_estimator=grpo."
    return run.advisory("critic useless", "warning", 0.8, evidence, remedy, name)


def mismatch(run: Health) -> Advisory | None:
    """Engine and trainer disagree about the probability of what was sampled."""
    value = run.mean(names.LOGPROB_MISMATCH)
    if value is None or value < MISMATCH:
        return None
    severity: Severity = "alarm" if value >= LARGE_MISMATCH else "warning"
    evidence = f"The log-probs of engine and trainer differ by {value:.3f} per token; in bfloat16 0.01 is usual."
    rollout = "actor_rollout_ref.rollout"
    cap = run.config.get(f"{rollout}.importance_cap")
    if run.config.get(f"{rollout}.old_log_probs") == "engine":
        remedy = f"Let the trainer compute them ({rollout}.old_log_probs=recompute)"
    elif cap is None:
        remedy = f"Weight tokens by their ratio ({rollout}.importance_cap=2)"
    else:
        remedy = f"Lower {rollout}.importance_cap ({cap} now)"
    remedy += "." if run.config.get(f"{rollout}.name") == "native" else f", or use {rollout}.name=native."
    return run.advisory("mismatch", severity, 0.9, evidence, remedy, names.LOGPROB_MISMATCH)


def truncation(run: Health) -> Advisory | None:
    """A limit cuts many replies or episodes."""
    episodes = run.num_episodes
    if not run.recent or episodes is None or run.lost_form is not None:
        return None  # replies without form run on to any limit
    turns = episodes * max(1.0, run.of_tags("num_turns"))
    tags = run.config.get("es_manager.train.env_configs.tags", ())
    cuts = {
        "reply_length": (turns, f"replies are cut by {reply_limits(run.config, tags)}"),
        "context": (episodes, "episodes end because actor_rollout_ref.rollout.max_model_len is full"),
    }
    for kind, (total, what) in cuts.items():
        name = names.join(names.TRAIN, names.TRUNCATION, kind)
        share = (run.mean(name) or 0.0) / total
        if share > CUT_SHARE:
            remedy = "Raise the limit, or tell the model to be shorter (max_tokens of the tag)."
            return run.advisory("truncation", "warning", 0.9, f"{share:.0%} of the {what}.", remedy, name)
    return None


def reply_limits(config: Mapping[str, Any], tags: Sequence[str]) -> str:
    """The keys, with their values, that limit the replies to some environments; `config` is flat.

    With agent_proxy.enforce_max_tokens, 200 tokens and a tag's 100 -> custom_envs.Lake.max_tokens=100
    """
    length = config.get(RESPONSE_LENGTH, 0)
    told = {tag: config.get(f"custom_envs.{tag}.max_tokens") for tag in tags}
    cut = {}
    if config.get("agent_proxy.enforce_max_tokens"):  # null is the environment's own
        cut = {tag: most for tag, most in told.items() if most is None or most < length}
    keys = [f"custom_envs.{tag}.max_tokens={'null' if most is None else most}" for tag, most in cut.items()]
    return " and ".join(keys + ([] if keys and len(cut) == len(told) else [f"{RESPONSE_LENGTH}={length}"]))


def failed(run: Health) -> Advisory | None:
    """The run ended with an error."""
    if run.state != "failed":
        return None
    evidence = f"It ended with an error: {safe(run.reason).rstrip('.')}." if run.reason else "It ended with an error."
    return run.advisory("failed", "alarm", 1.0, evidence, "Mend what is named and repeat the command.")


def stalled(run: Health) -> Advisory | None:
    """A run that says that it is running has no process any more, or has written nothing for long."""
    resume = f"{how_to_resume(run.config.get('trainer.resume_mode'))}."
    if run.state == "killed":
        return run.advisory("stalled", "alarm", 0.9, f"{KILLED.capitalize()}.", resume)
    if run.state != "running" or run.updated_at is None:
        return None
    seconds = run.mean(names.seconds("step")) or 0.0
    silent_for = run.now - run.updated_at
    if silent_for < max(STALLED_S, STALLED_STEPS * seconds):
        return None
    evidence = f"Nothing was written for {silent_for / 60:.0f} min, and a step takes {seconds:.0f} s."
    remedy = f"Was its process killed, or does an environment hang? {resume}"
    return run.advisory("stalled", "alarm", 0.7, evidence, remedy)


def memory(run: Health) -> Advisory | None:
    """Hardly any memory is left."""
    share = run.mean(names.MEMORY_SHARE)
    if share is None or share < FULL_MEMORY:
        return None
    evidence = f"At its peak the run held {share:.0%} of the memory of its device."
    remedy = (
        "One longer batch may end it: lower micro_batch_size_per_gpu or "
        "actor_rollout_ref.rollout.gpu_memory_utilization, or set "
        "actor_rollout_ref.model.enable_gradient_checkpointing=True."
    )
    return run.advisory("memory", "warning", 0.7, evidence, remedy, names.MEMORY_SHARE)


def no_progress(run: Health) -> Advisory | None:
    """Half of the training is over, and validation is where it was."""
    found, total = run.validations, run.config.get("trainer.total_training_steps")
    if len(found) < 4 or not isinstance(total, int) or found[-1][0] < total / 2:
        return None
    (_, first), (step, last) = found[0], found[-1]
    if last.mean > first.high or first.mean >= ALL_SOLVED:
        return None
    evidence = f"Validation success was {first} before training and is {last} at step {step}."
    remedy = (
        "Try a larger actor_rollout_ref.actor.optim.lr, larger groups, or easier levels; `ragen check` shows what pays."
    )
    return run.advisory("no progress", "tip", 0.6, evidence, remedy)


def healthy(run: Health) -> Advisory:
    """What is said where no other rule speaks."""
    found = run.validations
    if len(found) > 1:
        evidence = f"Validation success went from {found[0][1]} to {found[-1][1]} at step {found[-1][0]}."
    elif run.training:
        evidence = f"Success in training is {run.of_tags(names.SUCCESS):.2f}."
    else:
        evidence = "No step has been trained yet."
    return run.advisory("healthy", "healthy", 0.5, evidence, "")


RULES: tuple[Callable[[Health], Advisory | None], ...] = (
    form_lost,
    silence_pays,
    no_form,
    all_fail,
    no_variance,
    template_collapse,
    entropy_collapse,
    few_actions,
    critic_useless,
    mismatch,
    truncation,
    failed,
    stalled,
    memory,
    all_solved,
    no_progress,
)


def advise(run: Health) -> list[Advisory]:
    """What the rules say, the worst first; beside an alarm no tips for tuning, and `healthy` where none speaks."""
    found = [each for rule in RULES if (each := rule(run)) is not None]
    if any(each.severity == "alarm" for each in found):
        found = [each for each in found if each.severity != "tip"]
    return sorted(found or [healthy(run)], key=lambda each: (ORDER.index(each.severity), -each.certainty))


def with_episodes(found: Sequence[Advisory], folder: Path) -> list[Advisory]:
    """The same with the episodes to look at, from the newest rollout that the run directory holds."""
    last_step = max((each.steps[1] for each in found), default=0)
    exhibits = find_exhibits(folder, [each.rule for each in found], last_step=last_step)
    return [replace(each, episodes=exhibits[each.rule]) for each in found]
