"""One sentence for every metric and table a run logs; `python -m ragen.tracking.glossary` writes docs/metrics.md.

A pattern is a metric path whose changing parts are placeholders. Where several patterns fit a name, the first counts.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path

# Placeholder -> what it matches, what it stands for.
PLACEHOLDERS = {
    "rollout": (
        "train|val-env|val-env-greedy|sampled|greedy|random|solver",
        "where the episodes come from: `train`, `val-env` (validation, sampled), `val-env-greedy` (validation, "
        "greedy); `sampled`, `greedy`, `random`, `solver` in an evaluation",
    ),
    "tag": (r"(?!truncation/|faults/)[\w.+-]+", "an environment tag of `custom_envs`, such as `CoordSokoban`"),
    "info": (r"[A-Za-z_]\w*", "a number the environment reports with each turn"),
    "k": (r"\d+", "a number of tries"),
    "bucket": (r"all|bucket_\d+", "`all`, or `bucket_1` (lowest reward deviation), `bucket_2`, ..."),
    "p": ("grad_norm|grad_norm_prefilter", "`grad_norm` (kept groups) or `grad_norm_prefilter` (all groups)"),
    "component": ("task|entropy|kl", "a term of the actor's loss: `task`, `entropy`, `kl`"),
    "pair": ("task_entropy|task_kl|entropy_kl", "two components: `task_entropy`, `task_kl` or `entropy_kl`"),
    "loss": ("policy|entropy|kl|total", "`policy`, `entropy`, `kl` (with coefficient and sign) or their sum `total`"),
    "set": (
        "first_turn|trajectory",
        "the sampled replies: of first turns (`first_turn`) or of any turn (`trajectory`)",
    ),
    "novelty": ("unseen|seen", "`unseen` or `seen` in training, by content"),
    "statistic": ("mean|max|min", "`mean`, `max` or `min`"),
    "over": ("std|max|mean", "`std`, `max` or `mean` over the episodes of a group"),
    "of": ("reward|entropy|length|success", "what the filter scores: `reward`, `entropy`, `length` or `success`"),
    "stage": (r"[a-z]\w*", "a stage of the step: `gen`, `filter`, `old_log_prob`, `ref`, `values`, `adv`, ..."),
    "rule": (
        "reward_variance_collapse|low_validation_success|empty_filtered_steps",
        "`reward_variance_collapse`, `low_validation_success` or `empty_filtered_steps`",
    ),
}

SECTIONS: dict[str, dict[str, str]] = {
    "Episodes": {
        "<rollout>/<tag>/success": "Share of episodes that were solved.",
        "<rollout>/<tag>/num_actions": "Actions the environment received per episode.",
        "<rollout>/<tag>/num_turns": "Turns per episode.",
        "<rollout>/<tag>/reward": "Sum of the environment's rewards per episode.",
        "<rollout>/<tag>/penalty": "Sum of the format penalties per episode, zero or negative.",
        "<rollout>/<tag>/score": "Reward and penalty per episode: what training maximises.",
        "<rollout>/<tag>/action_is_valid": "Share of turns whose last action the environment knows.",
        "<rollout>/<tag>/action_is_effective": "Share of turns whose last action changed the state.",
        "<rollout>/<tag>/manager_invalid_action": "Share of turns with a reply that had the wrong form or no action.",
        "<rollout>/<tag>/raw_reward": "Reward before any shaping, averaged over the turns.",
        "<rollout>/<tag>/episodic_return": "Return the environment reports itself, averaged over the turns.",
        "<rollout>/<tag>/n_low_arm": "Share of turns that pulled the arm with the lower mean.",
        "<rollout>/<tag>/n_high_arm": "Share of turns that pulled the arm with the higher mean.",
        "<rollout>/<tag>/n_invalid": "Share of turns that pulled no arm.",
        "<rollout>/<tag>/pass@<k>": "Share of groups of k episodes in which at least one was solved.",
        "<rollout>/<tag>/non-zero/<info>": "Mean of the same number over the episodes where it is not zero.",
        "<rollout>/<tag>/success_low": "Lower end of the 95 % interval of the success.",
        "<rollout>/<tag>/success_high": "Upper end of the 95 % interval of the success.",
        "<rollout>/<tag>/success_unseen": "Success on the validation levels that training has not played so far, by "
        "content.",
        "<rollout>/<tag>/success_<novelty>_low": "Lower end of its 95 % interval.",
        "<rollout>/<tag>/success_<novelty>_high": "Upper end of its 95 % interval.",
        "<rollout>/<tag>/success_seen": "Success on the validation levels whose like training has played.",
        "<rollout>/<tag>/levels_unseen": "Validation levels that training has not played so far, by content.",
        "<rollout>/<tag>/levels_seen": "Validation levels whose like training has played.",
        "<rollout>/response_length": "Sampled tokens per episode.",
        "<rollout>/truncation/turn_cap": "Episodes that ended because max_turn was reached.",
        "<rollout>/truncation/action_budget": "Episodes that ended because max_actions_per_traj was spent.",
        "<rollout>/truncation/context": "Episodes that ended because the next prompt no longer fitted.",
        "<rollout>/truncation/first_prompt": "Of these, episodes whose first prompt did not fit: no reply was given.",
        "<rollout>/truncation/dropped_turns": "Earlier turns that were cut from prompts to make them fit.",
        "<rollout>/truncation/dropped_actions": "Known actions that were not executed: beyond a cap or after the end.",
        "<rollout>/truncation/reply_length": "Replies that were cut at response_length.",
        "<rollout>/truncation/parse_failure": "Replies that did not have the required form.",
        "<rollout>/faults/env_errors": "Episodes lost because the environment raised or returned wrong values.",
        "<rollout>/faults/env_timeouts": "Episodes lost because the environment did not return in step_timeout.",
        "<rollout>/faults/engine_errors": "Episodes lost because the engine gave up on a reply.",
        "<rollout>/faults/incomplete_groups": "Groups with a member lost to a fault or without a reply; not trained.",
        "<rollout>/<tag>/<info>": "Mean over episodes of this number, averaged over the turns of each.",
    },
    "Validation rewards": {
        "val-core/<tag>/reward/mean@<k>": "Mean score of the k tries at each level, averaged over the levels.",
        "val-aux/<tag>/reward/std@<k>": "Standard deviation of the score over the k tries, averaged over the levels.",
        "val-aux/<tag>/reward/best@<k>/mean": "Expected best score of k draws from the tries at a level.",
        "val-aux/<tag>/reward/best@<k>/std": "Deviation of the best score of k draws from the tries at a level.",
        "val-aux/<tag>/reward/worst@<k>/mean": "Expected worst score of k draws from the tries at a level.",
        "val-aux/<tag>/reward/worst@<k>/std": "Deviation of the worst score of k draws from the tries at a level.",
        "val/generations": "Table: validation episodes to read, with prompt, replies and score.",
    },
    "Rollout filter": {
        "rollout/in_group_<over>": "The group scores' own statistic, averaged over all groups, before filtering.",
        "rollout/chosen_in_group_<over>": "The same over the kept groups; 0 if none was kept.",
        "rollout/in_group_<of>_<over>": "Statistic of the episodes of a group, averaged over all groups.",
        "rollout/in_group_<of>_sum": "Sum over the episodes of a group, averaged over all groups.",
        "rollout/chosen_in_group_<of>_<over>": "Statistic of the episodes of a group, averaged over the kept groups.",
        "rollout/chosen_in_group_<of>_sum": "Sum over the episodes of a group, averaged over the kept groups.",
        "rollout/filter_kept_count": "Groups that were kept.",
        "rollout/filter_kept_ratio": "Kept groups as a share of all groups.",
        "rollout/filter_zero_count": "Groups whose score is zero: all their episodes are alike.",
        "rollout/empty_after_filter": "1 if no group was kept at this step; nothing is trained then.",
        "rollout/consecutive_empty_after_filter_steps": "Steps in a row, up to this one, at which no group was kept.",
        "rollout/reward_table": "Table: the score of every episode, one row per group.",
        "rollout/group_rv_table": "Table: step, group_id, reward_std and whether the group was kept.",
    },
    "Training batch": {
        "train/batch_size": "Samples that are trained on at this step.",
        "train/num_mini_batches": "Optimizer steps of the actor that the batch gives per epoch.",
        "train/rollout_attempts": "Rollouts made for this step; always 1.",
        "train/soft_reweight_<statistic>": "Weight of a group under soft_advantage_reweight.",
        "response_length/<statistic>": "Sampled tokens per sample.",
        "response_length/clip_ratio": "Share of samples whose last reply was cut at response_length.",
        "prompt_length/<statistic>": "Prompt tokens per sample.",
        "prompt_length/clip_ratio": "Share of samples whose prompt was cut.",
        "global_seqlen/min": "Fewest tokens on a rank before balancing.",
        "global_seqlen/max": "Most tokens on a rank before balancing.",
        "global_seqlen/mean": "Tokens per rank.",
        "global_seqlen/minmax_diff": "Difference between the most and the fewest tokens on a rank before balancing.",
        "global_seqlen/balanced_min": "Fewest tokens on a rank after balancing.",
        "global_seqlen/balanced_max": "Most tokens on a rank after balancing.",
        "rollout/ref_log_prob": "Mean log-probability of the sampled tokens under the reference model.",
        "rollout/logprob_mismatch_mean": "Mean |engine - trainer| log-probability of the sampled tokens; with "
        "old_log_probs=engine of 8 samples, drawn at random by seed.train and the step.",
        "rollout/logprob_mismatch_max": "Largest |engine - trainer| log-probability of a sampled token of the same "
        "samples.",
        "rollout/canary_logprob_diff": "Mean distance of vLLM's and the trainer's log-probs of a fixed text.",
        "rollout/importance_weight_mean": "Mean truncated weight that corrects the mismatch; 1 is no correction.",
    },
    "Actor": {
        "actor/pg_loss": "Clipped policy-gradient loss.",
        "actor/pg_clipfrac": "Share of tokens whose probability ratio was clipped.",
        "actor/pg_clipfrac_lower": "Share of tokens with negative advantage that the dual clip (clip_ratio_c) held.",
        "actor/ppo_kl": "Mean log-probability change since the rollout, old minus new.",
        "actor/entropy": "Token entropy of the policy on the whole batch, before the update; with old_log_probs=engine "
        "as the engine gave it.",
        "actor/entropy_loss": "Token entropy of the policy during the update.",
        "actor/kl_loss": "KL to the reference model in the loss, before its coefficient.",
        "actor/kl_coef": "Coefficient of the KL in the loss.",
        "actor/reward_kl_penalty": "KL to the reference model that was subtracted from the rewards.",
        "actor/reward_kl_penalty_coeff": "Coefficient of the KL in the reward.",
        "actor/grad_norm": "Norm of the gradient before clipping, averaged over the optimizer steps.",
        "actor/lr": "Learning rate.",
        "actor/skipped_steps": "Optimizer steps skipped because the gradient was not finite.",
        "actor/skipped_for_gradient_analysis_only": "1 if gradient_analysis_only kept the actor as it was.",
        "actor/loss/<loss>": "Term of the loss over the whole batch of a gradient analysis.",
        "actor/grad_norm/<component>": "Gradient norm of a term over the whole batch of a gradient analysis.",
    },
    "Critic and advantages": {
        "critic/score/<statistic>": "Score of a sample, before any KL penalty.",
        "critic/rewards/<statistic>": "Reward of a sample, after any KL penalty.",
        "critic/advantages/<statistic>": "Advantage of a sampled token.",
        "critic/returns/<statistic>": "Return of a sampled token.",
        "critic/values/<statistic>": "Value the critic gives a sampled token.",
        "critic/vf_explained_var": "Share of the returns' variance that the values explain; 1 is perfect.",
        "critic/vf_loss": "Clipped value loss.",
        "critic/vf_clipfrac": "Share of tokens whose value was clipped.",
        "critic/vpred_mean": "Mean predicted value during the update.",
        "critic/grad_norm": "Norm of the gradient before clipping, averaged over the optimizer steps.",
        "critic/lr": "Learning rate.",
        "critic/skipped_steps": "Optimizer steps skipped because the gradient was not finite.",
        "critic/skipped_for_gradient_analysis_only": "1 if gradient_analysis_only kept the critic as it was.",
    },
    "Supervised training": {
        "sft/train_loss": "Mean negative log-likelihood of the reply tokens of an optimizer step.",
        "sft/val_loss": "The same over the held-out demonstrations, after each epoch.",
        "sft/grad_norm": "Norm of the gradient before clipping.",
        "sft/lr": "Learning rate.",
        "sft/epoch": "Passes over the demonstrations so far.",
        "sft/tokens_per_second": "Tokens, prompts included, that training went through per second.",
    },
    "Gradient analysis": {
        "<p>/<bucket>/sample_count": "Samples in the bucket.",
        "<p>/<bucket>/sample_pct": "Samples in the bucket as a fraction of the batch, in [0, 1].",
        "<p>/<bucket>/reward_std_mean": "Reward deviation of a group, averaged over the groups of the bucket.",
        "<p>/<bucket>/reward_std_min": "Smallest reward deviation in the bucket.",
        "<p>/<bucket>/reward_std_max": "Largest reward deviation in the bucket.",
        "<p>/<bucket>/group_rv_count": "Groups in the bucket.",
        "<p>/<bucket>/group_rv_table": "Table: bucket, group_id and reward_std of its groups.",
        "<p>/<bucket>/<component>": "Norm of the gradient of this term of the loss over the bucket.",
        "<p>/<bucket>/per_sample/<component>": "That norm divided by the samples of the bucket; buckets of unequal "
        "size cannot be compared by it.",
        "<p>/<bucket>/per_token/<component>": "That norm divided by the sampled tokens of the bucket; buckets of "
        "unequal size cannot be compared by it.",
        "<p>/<bucket>/loss/<loss>": "Term of the loss over the bucket.",
        "<p>/<bucket>/norm_low/<component>": "Lower end of where the norm of 95 % of other such batches falls.",
        "<p>/<bucket>/norm_high/<component>": "Upper end of where the norm of 95 % of other such batches falls.",
        "<p>/<bucket>/norm_debiased/<component>": "That norm without the part that sampling adds to it.",
        "<p>/<bucket>/norm_one_group/<component>": "Norm that one group of the bucket has, whatever the bucket's size.",
        "<p>/<bucket>/is_probed/<component>": "1 where this component is on.",
        "<p>/<bucket>/split_half_cosine/<component>": "Cosine between the gradients of two halves: 0 noise, 1 signal.",
        "<p>/<bucket>/cosine/<pair>": "Cosine between the gradients of two components.",
        "grad_analysis/uses_training_batch": "1 if the training batch was analysed, 0 if a separate one was.",
        "grad_analysis/source_env_groups": "Groups of the analysed rollout.",
        "grad_analysis/source_group_size": "Episodes per group of the analysed rollout.",
        "grad_analysis/source_batch_size": "Samples of the analysed rollout, before filtering.",
        "grad_analysis/adjusted_batch_size": "Samples that were analysed.",
        "grad_analysis/empty_after_filter": "1 if the filter kept no group of the analysed rollout.",
        "grad_analysis/in_group_<over>": "As rollout/in_group_<over>, of the analysed rollout.",
        "grad_analysis/chosen_in_group_<over>": "As rollout/chosen_in_group_<over>, of the analysed rollout.",
        "grad_analysis/in_group_<of>_<over>": "As rollout/in_group_<of>_<over>, of the analysed rollout.",
        "grad_analysis/in_group_<of>_sum": "As rollout/in_group_<of>_sum, of the analysed rollout.",
        "grad_analysis/chosen_in_group_<of>_<over>": "As rollout/chosen_in_group_<of>_<over>, of the analysed rollout.",
        "grad_analysis/chosen_in_group_<of>_sum": "As rollout/chosen_in_group_<of>_sum, of the analysed rollout.",
        "grad_analysis/filter_kept_count": "Groups of the analysed rollout that were kept.",
        "grad_analysis/filter_kept_ratio": "Kept groups as a share of the analysed rollout.",
        "grad_analysis/filter_zero_count": "Groups of the analysed rollout whose score is zero.",
        "grad_analysis_prefilter/source_batch_size": "Samples of the unfiltered copy of the analysed rollout.",
        "grad_analysis_prefilter/adjusted_batch_size": "Samples of the unfiltered copy that were analysed.",
        "trainer/gradient_analysis_only": "1 if the run only analyses and updates nothing.",
        "trainer/exited_after_gradient_analysis": "1 at the step where exit_after_gradient_analysis ended the run.",
    },
    "Reasoning collapse": {
        "collapse_<set>_sample/mi_estimate": "Mutual information of prompt and reasoning, in nats per token.",
        "collapse_<set>_sample/mi_seq_estimate": "Mutual information of prompt and reasoning, in nats.",
        "collapse_<set>_sample/mi_upper_bound": "Largest value the estimate can take: log of the number of prompts.",
        "collapse_<set>_sample/conditional_entropy_est": "Entropy of the reasoning given its prompt, per token.",
        "collapse_<set>_sample/conditional_entropy_seq_est": "Entropy of the reasoning given its prompt.",
        "collapse_<set>_sample/reasoning_entropy_est": "Entropy of the reasoning over all prompts, per token.",
        "collapse_<set>_sample/reasoning_entropy_seq_est": "Entropy of the reasoning over all prompts.",
        "collapse_<set>_sample/matched_log_prob_mean": "Log-probability of a reasoning under its prompt, per token.",
        "collapse_<set>_sample/marginal_log_prob_mean": "Log-probability of a reasoning over all prompts, per token.",
        "collapse_<set>_sample/marginal_std": "Standard deviation of the marginal log-probability, per token.",
        "collapse_<set>_sample/marginal_std_seq": "Standard deviation of the marginal log-probability.",
        "collapse_<set>_sample/marginal_std_ema": "Moving average of marginal_std over the computations so far.",
        "collapse_<set>_sample/marginal_std_ema_seq": "Moving average of marginal_std_seq.",
        "collapse_<set>_sample/mi_zscore": "Mutual information in units of marginal_std.",
        "collapse_<set>_sample/mi_zscore_seq": "Mutual information in units of marginal_std_seq.",
        "collapse_<set>_sample/mi_zscore_ema": "Mutual information in units of marginal_std_ema.",
        "collapse_<set>_sample/mi_zscore_ema_seq": "Mutual information in units of marginal_std_ema_seq.",
        "collapse_<set>_sample/retrieval_accuracy": "Share of reasonings whose own prompt explains them best.",
        "collapse_<set>_sample/retrieval_accuracy@<k>": "Share whose own prompt is among the k best.",
        "collapse_<set>_sample/retrieval_chance_level": "The accuracy of guessing.",
        "collapse_<set>_sample/retrieval_chance_level@<k>": "The accuracy of guessing k times.",
        "collapse_<set>_sample/retrieval_above_chance": "Accuracy less the accuracy of guessing.",
        "collapse_<set>_sample/retrieval_above_chance@<k>": "Accuracy among the k best less that of guessing k times.",
        "collapse/valid_thinking_rate": "Share of turns with some reasoning.",
        "collapse/first_turn_num_total": "First turns.",
        "collapse/first_turn_num_valid": "First turns with some reasoning.",
        "collapse/first_turn_valid_rate": "Share of first turns with some reasoning.",
    },
    "Early stopping": {
        "early_stopped/<rule>": "1 at the step where this rule ended the run.",
    },
    "Time and speed": {
        "timing_s/step": "Seconds of the step, with everything in it.",
        "timing_s/train_step": "Seconds of the step without validation, checkpoint and collapse metrics.",
        "timing_s/eval_step": "Seconds of validation in the step.",
        "timing_s/train_total": "Sum of train_step so far, over resumes.",
        "timing_s/eval_total": "Sum of eval_step so far, over resumes.",
        "timing_s/collapse_total": "Seconds of collapse metrics so far.",
        "timing_s/collapse_first_turn_total": "Seconds of the first-turn collapse metrics so far.",
        "timing_s/collapse_multi_turn_total": "Seconds of the trajectory collapse metrics so far.",
        "timing_s/total": "Sum of step so far, over resumes.",
        "timing_s/gen": "Seconds of the rollout.",
        "timing_s/filter": "Seconds of the rollout filter.",
        "timing_s/reward": "Seconds of building rewards.",
        "timing_s/old_log_prob": "Seconds of recomputing the log-probabilities of the sampled tokens.",
        "timing_s/ref": "Seconds of the reference model's log-probabilities.",
        "timing_s/values": "Seconds of the critic's values.",
        "timing_s/adv": "Seconds of the advantages.",
        "timing_s/update_critic": "Seconds of the critic's update.",
        "timing_s/update_actor": "Seconds of the actor's update.",
        "timing_s/gradient_analysis": "Seconds of the gradient analysis.",
        "timing_s/testing": "Seconds of validation.",
        "timing_s/save_checkpoint": "Seconds of writing the checkpoint.",
        "timing_s/collapse_metrics": "Seconds of the collapse metrics.",
        "timing_s/collapse_first_turn_step": "Seconds of the first-turn collapse metrics.",
        "timing_s/collapse_multi_turn_step": "Seconds of the trajectory collapse metrics.",
        "timing_s/<stage>": "Seconds of this stage in the step.",
        "timing_per_token_ms/<stage>": "Milliseconds of this stage per token it worked on.",
        "perf/total_num_tokens": "Tokens of the batch, prompts and replies.",
        "perf/time_per_step": "Seconds of the step.",
        "perf/throughput": "Tokens per second and device.",
    },
}

GLOSSARY: dict[str, str] = {pattern: line for section in SECTIONS.values() for pattern, line in section.items()}


def pattern_of(name: str) -> str | None:
    """The pattern that a metric name fits: train/CoordSokoban/pass@16 -> <rollout>/<tag>/pass@<k>."""
    if name in GLOSSARY:
        return name
    return next((pattern for pattern in GLOSSARY if _regex(pattern).fullmatch(name)), None)


def describe(name: str) -> str | None:
    """What a metric means; None if the glossary does not know it."""
    pattern = pattern_of(name)
    return None if pattern is None else GLOSSARY[pattern]


def unknown(names: Iterable[str]) -> list[str]:
    """The names that have no line."""
    return [name for name in names if pattern_of(name) is None]


@functools.cache
def _regex(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"<(\w+)>", pattern)
    texts = [re.escape(part) if index % 2 == 0 else f"(?:{PLACEHOLDERS[part][0]})" for index, part in enumerate(parts)]
    return re.compile("".join(texts))


def to_markdown() -> str:
    """The page docs/metrics.md."""
    lines = [
        "# Metrics",
        "",
        "Every number and table a run logs, in `metrics.jsonl`, W&B, TensorBoard and the console alike.",
        "This page is written by `python -m ragen.tracking.glossary` from `ragen/tracking/glossary.py`.",
        "",
        "| part of a name | stands for |",
        "|---|---|",
        *(f"| `<{name}>` | {meaning} |" for name, (_, meaning) in PLACEHOLDERS.items()),
    ]
    for title, section in SECTIONS.items():
        lines += ["", f"## {title}", "", "| metric | meaning |", "|---|---|"]
        lines += [f"| `{pattern}` | {line} |" for pattern, line in section.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    page = Path(__file__).parents[2] / "docs" / "metrics.md"
    page.write_text(to_markdown(), encoding="utf-8")
    print(f"{page}: {len(GLOSSARY)} lines")
