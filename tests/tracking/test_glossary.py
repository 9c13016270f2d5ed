"""Every metric has a line. What real runs log is compared in test_logged_names.py."""

import itertools
import re

import pytest

from ragen.llm_agent.metrics import rollout_metrics
from ragen.tracking.glossary import PAGE, PLACEHOLDERS, pattern_of, read_glossary, unknown
from ragen.tracking.timing import TOTALS, Timers
from ragen.types import Episode, Status, Turn

# Written out from the specification, not from the glossary.
SPECIFIED = """
train/CoordSokoban/success val-env/CoordSokoban/success val-env/CoordSokoban/pass@1 train/CoordSokoban/pass@16
val-env-greedy/CoordFrozenLake/success train/Bandit/non-zero/num_actions train/response_length
rollout/in_group_std rollout/in_group_max rollout/in_group_mean
rollout/chosen_in_group_std rollout/chosen_in_group_max rollout/chosen_in_group_mean
rollout/filter_kept_count rollout/filter_kept_ratio rollout/filter_zero_count
rollout/in_group_reward_std rollout/in_group_reward_sum rollout/chosen_in_group_reward_max
rollout/in_group_entropy_std rollout/chosen_in_group_length_mean
rollout/empty_after_filter rollout/consecutive_empty_after_filter_steps train/rollout_attempts
rollout/reward_table rollout/group_rv_table val/generations
train/soft_reweight_min train/soft_reweight_max train/soft_reweight_mean
train/batch_size train/num_mini_batches
actor/pg_loss actor/pg_clipfrac actor/ppo_kl actor/pg_clipfrac_lower actor/entropy actor/entropy_loss actor/kl_loss
actor/kl_coef actor/lr actor/grad_norm actor/reward_kl_penalty actor/reward_kl_penalty_coeff
critic/vf_loss critic/vf_clipfrac critic/vpred_mean critic/grad_norm critic/lr critic/vf_explained_var
critic/skipped_for_gradient_analysis_only actor/skipped_for_gradient_analysis_only trainer/gradient_analysis_only
rollout/ref_log_prob rollout/logprob_mismatch_mean rollout/logprob_mismatch_max rollout/importance_weight_mean
actor/skipped_steps critic/skipped_steps
val-core/CoordSokoban/reward/mean@512 val-aux/CoordSokoban/reward/std@512 val-aux/CoordSokoban/reward/best@4/mean
val-aux/CoordSokoban/reward/worst@2/std
early_stopped/reward_variance_collapse early_stopped/low_validation_success early_stopped/empty_filtered_steps
response_length/mean prompt_length/max global_seqlen/mean
perf/total_num_tokens perf/time_per_step perf/throughput
timing_s/gen timing_s/collapse_metrics timing_s/update_actor timing_per_token_ms/gen
timing_s/train_step timing_s/eval_step timing_s/train_total timing_s/eval_total timing_s/collapse_total
timing_s/collapse_first_turn_total timing_s/collapse_multi_turn_total timing_s/total
grad_norm/all/sample_count grad_norm/bucket_1/sample_pct grad_norm/bucket_12/reward_std_mean
grad_norm/bucket_1/reward_std_min grad_norm/bucket_1/reward_std_max grad_norm/bucket_1/group_rv_count
grad_norm/bucket_1/group_rv_table grad_norm_prefilter/bucket_6/task grad_norm/all/entropy grad_norm/all/kl
grad_norm/bucket_2/per_sample/task grad_norm_prefilter/bucket_2/per_token/kl grad_norm/bucket_2/loss/policy
grad_norm/all/loss/total actor/loss/policy actor/loss/total actor/grad_norm/task
grad_analysis/uses_training_batch grad_analysis/source_env_groups grad_analysis/source_group_size
grad_analysis/source_batch_size grad_analysis/empty_after_filter grad_analysis/adjusted_batch_size
grad_analysis/filter_kept_ratio grad_analysis/in_group_reward_std grad_analysis_prefilter/source_batch_size
grad_analysis_prefilter/adjusted_batch_size trainer/exited_after_gradient_analysis
collapse_first_turn_sample/mi_estimate collapse_trajectory_sample/mi_seq_estimate
collapse_first_turn_sample/mi_upper_bound collapse_first_turn_sample/conditional_entropy_seq_est
collapse_first_turn_sample/marginal_std_ema_seq collapse_trajectory_sample/mi_zscore_ema_seq
collapse_first_turn_sample/retrieval_accuracy collapse_first_turn_sample/retrieval_accuracy@8
collapse_first_turn_sample/retrieval_chance_level@2 collapse_first_turn_sample/retrieval_above_chance@4
collapse/valid_thinking_rate collapse/first_turn_num_total collapse/first_turn_num_valid
collapse/first_turn_valid_rate timing_s/collapse_multi_turn_step timing_s/collapse_first_turn_step
"""


def test_every_specified_name_has_a_line():
    assert unknown(SPECIFIED.split()) == []


@pytest.mark.parametrize("quantity", ["score", "rewards", "advantages", "returns", "values"])
def test_statistics_of_the_batch_have_a_line(quantity):
    assert unknown(f"critic/{quantity}/{statistic}" for statistic in ("mean", "max", "min")) == []


@pytest.mark.parametrize("name", ["actor/lrr", "timing/gen", "grad_norm/bucket_x/task", "rollout/", "train/a/b/c/d"])
def test_a_misspelt_name_is_unknown(name):
    assert unknown([name, "actor/lr"]) == [name]


@pytest.mark.parametrize("prefix", ["train", "val-env", "val-env-greedy", "sampled", "greedy", "random", "solver"])
def test_every_rollout_metric_has_a_line(prefix):
    turn = Turn(
        user="", prompt_ids=[], response_ids=[1], logprobs=[0.0], text="", stop_reason="stop", info={"n_high_arm": 1.0}
    )
    episode = Episode(
        tag="Coord-Sokoban.v2", env_type="t", group_id=0, member=0, seed=0, turns=[turn], status=Status.SOLVED
    )
    names = [f"{prefix}/{name}" for name in rollout_metrics([episode])]
    assert unknown(names) == []
    assert pattern_of(f"{prefix}/truncation/turn_cap") == "<rollout>/truncation/turn_cap"
    assert unknown([f"{prefix}/truncation/new_limit"]) == [f"{prefix}/truncation/new_limit"]


def test_every_timing_has_a_line():
    timers = Timers()
    with timers("step"), timers("gen"):
        pass
    names = timers.finish_step(num_tokens=1)
    assert unknown(names) == []
    assert all(f"timing_s/{total}" in read_glossary() for total in TOTALS)


def test_the_most_exact_pattern_describes_a_name():
    assert pattern_of("train/Bandit/success") == "<rollout>/<tag>/success"
    assert pattern_of("train/Bandit/my_number") == "<rollout>/<tag>/<info>"
    assert read_glossary()["timing_s/gen"] == "Seconds of the rollout."
    assert pattern_of("timing_s/my_stage") is None


def test_no_pattern_hides_a_later_one():
    """Each pattern, filled with plain words, finds itself."""
    words = {
        "rollout": "train",
        "tag": "T",
        "info": "my_number",
        "name": "my/name",
        "k": "7",
        "turn": "1",
        "bucket": "bucket_1",
    }
    for pattern in read_glossary():
        options = [
            [words[name]] if name in words else PLACEHOLDERS[name].split("|")
            for name in re.findall(r"<(\w+)>", pattern)
        ]
        for choice in itertools.product(*options):
            values = iter(choice)
            name = re.sub(r"<\w+>", lambda match, values=values: next(values), pattern)
            assert pattern_of(name) == pattern


def test_every_line_is_one_sentence():
    for pattern, line in read_glossary().items():
        assert line[0].isupper() or line[0] == "1", pattern
        assert line.endswith(".") and "\n" not in line, pattern


def test_the_page_says_what_every_placeholder_stands_for():
    page = PAGE.read_text()
    used = {name for pattern in read_glossary() for name in re.findall(r"<(\w+)>", pattern)}
    assert used == PLACEHOLDERS.keys()
    assert all(f"| `<{name}>` | " in page for name in used)
