"""The cause behind an early stop, from the metrics of the last steps."""

import pytest

from ragen.tracking.advisories.stop_cause import OTHERWISE, REMEDIES, StopCause, find_stop_cause

COLLAPSE, EMPTY, LOW = "reward_variance_collapse", "empty_filtered_steps", "low_validation_success"


def step(
    number: int, success: float, *, invalid: float = 0.0, difference: float | None = None, std: float = 0.0
) -> dict[str, float]:
    """The metrics of a training step."""
    row = {
        "step": number,
        "train/T/success": success,
        "train/T/non-zero/success": 1.0,
        "train/T/manager_invalid_action": invalid,
        "rollout/in_group_reward_std": std,
    }
    return row if difference is None else row | {"incentive/valid_minus_invalid": difference}


def cause(rule: str, *rows: dict[str, float]) -> StopCause:
    found = find_stop_cause(rule, rows)
    assert found is not None and found.remedy
    return found


def test_silence_pays_where_nearly_all_turns_are_invalid():
    tried = [step(number, 0.1, invalid=0.3) for number in range(5)]
    found = cause(EMPTY, *tried, *[step(number, 0.0, invalid=0.98) for number in range(5, 10)])
    assert found.name == "silence pays"
    assert found.evidence == "in the last 5 steps 98% of turns were invalid, and no group had valid replies beside them"


def test_the_form_is_lost_where_it_was_there_at_first_and_paid():
    began = [step(1, 0.7, invalid=0.01, difference=0.25), step(2, 0.02, invalid=0.97, difference=0.35)]
    mute = [step(number, 0.0, invalid=1.0) for number in range(3, 9)]
    found = cause(EMPTY, *began, *mute)
    assert found.name == "form lost" and "actor_rollout_ref.actor.optim.lr" in found.remedy
    assert found.evidence == (
        "in the last 5 steps 100% of the turns were invalid, in the first rollout 1%, and valid replies of the same "
        "groups earned 0.30 more"
    )
    paid = [row | {"incentive/valid_minus_invalid": -0.1} for row in began]
    assert cause(EMPTY, *paid, *mute).name == "silence pays"
    assert cause(EMPTY, *began[1:], *mute).name == "no form"


def test_a_model_that_never_had_the_form_has_not_learned_to_be_silent():
    never = [step(number, 0.0, invalid=0.98) for number in range(9)]
    found = cause(EMPTY, *never)
    assert found.name == "no form" and "ragen sft" in found.remedy
    assert found.evidence == "in the last 5 steps 98% of turns were invalid, in the first 5 98%"
    assert cause(EMPTY, *[row | {"incentive/valid_minus_invalid": -0.1} for row in never]).name == "silence pays"
    assert cause(EMPTY, never[0]).evidence == "in the last step 98% of turns were invalid, in the first 98%"


def test_silence_pays_where_invalid_replies_earn_as_much():
    found = cause(COLLAPSE, step(1, 0.1, invalid=0.4, difference=-0.25), step(2, 0.1, invalid=0.6, difference=-0.75))
    assert found.name == "silence pays"
    assert found.evidence == (
        "in the last 2 steps 50% of turns were invalid, and valid replies of the same groups earned 0.50 less"
    )
    assert cause(COLLAPSE, step(1, 0.1, invalid=0.2, difference=0.0)).evidence.endswith("earned no more")


def test_a_few_invalid_replies_explain_nothing():
    assert cause(COLLAPSE, step(1, 0.5, invalid=0.1, difference=-1.0)).name == "no variance"
    assert cause(COLLAPSE, step(1, 0.5, invalid=0.5, difference=1.0)).name == "no variance"


def test_only_the_last_steps_count():
    early = [step(number, 0.0, invalid=1.0) for number in range(10)]
    late = [step(number, 0.27, std=0.004) for number in range(10, 15)]
    found = cause(COLLAPSE, *early, *late)
    assert found.name == "no variance"
    assert found.evidence == "in the last 5 steps success was 0.270 and the rewards of a group deviated by 0.004"


@pytest.mark.parametrize(
    ("success", "name"), [(0.0, "all fail"), (0.01, "all fail"), (0.5, "no variance"), (0.99, "all solved")]
)
def test_equal_rewards_are_told_apart_by_success(success, name):
    assert cause(EMPTY, step(1, success)).name == cause(COLLAPSE, step(1, success)).name == name


def test_a_filter_that_keeps_nothing_of_groups_that_differ_is_strict():
    assert cause(EMPTY, step(1, 0.5, std=0.3)).name == "strict filter"
    assert cause(COLLAPSE, step(1, 0.5, std=0.3)).name == "no variance"  # less than at first, which the rule says


def test_a_rule_about_validation_looks_at_the_worst_environment_there():
    row = step(8, 0.9) | {
        "val-env/A/success": 0.6,
        "val-env/B/success": 0.05,
        "val-env/B/manager_invalid_action": 0.1,
    }
    found = cause(LOW, row, step(9, 0.9))
    assert found.name == "few succeed" and found.evidence.startswith("in the last validation success was 0.050")
    assert cause(LOW, row | {"val-env/B/success": 0.0}).name == "all fail"
    silent = row | {"step": 16, "val-env/B/manager_invalid_action": 1.0}
    assert cause(LOW, silent).name == "no form"
    assert cause(LOW, *[row] * 5, *[silent] * 5).name == "silence pays"


def test_without_a_word_about_success_there_is_no_cause():
    assert find_stop_cause(EMPTY, []) is None
    assert find_stop_cause(EMPTY, [{"step": 1, "rollout/in_group_reward_std": 0.0}]) is None


def test_every_rule_ends_in_a_cause_that_has_a_remedy():
    assert set(OTHERWISE) == {COLLAPSE, EMPTY, LOW} and set(OTHERWISE.values()) <= set(REMEDIES)
