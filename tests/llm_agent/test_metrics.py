"""What a rollout achieved, counted by hand."""

from __future__ import annotations

import pytest

from ragen.llm_agent.metrics import episode_metrics, rollout_metrics, truncation_ledger
from ragen.types import Episode, Status, Turn


def turn(*executed: str, info: dict[str, float] | None = None, num_tokens: int = 0, **changes) -> Turn:
    fields = {"user": "", "prompt_ids": [], "logprobs": [], "text": "", "stop_reason": "stop_token"} | changes
    return Turn(response_ids=[1] * num_tokens, executed=list(executed), info=info or {}, **fields)


def episode(*turns: Turn, status: Status = Status.OUT_OF_TURNS, group: int = 0, tag: str = "A") -> Episode:
    return Episode(tag=tag, env_type="", group_id=group, member=0, seed=0, turns=list(turns), status=status)


SOLVED, FAILED, LOST = Status.SOLVED, Status.FAILED, Status.ENV_ERROR


def test_environment_numbers_are_averaged_over_turns_and_missing_ones_count_zero():
    metrics = episode_metrics(
        episode(
            turn("Up", "Up", info={"action_is_valid": 1.0, "success": 0.0}, reward=1.0),
            turn(info={"manager_invalid_action": 1.0}, penalty=-0.1),
            turn("Up", info={"action_is_valid": 1.0, "success": 1.0}, reward=2.0),
            turn("Up", info={"action_is_valid": 0.0, "raw_reward": 8.0}),
            status=SOLVED,
        )
    )
    assert metrics == {
        "success": 1.0,
        "num_actions": 4.0,
        "action_is_valid": 0.5,
        "manager_invalid_action": 0.25,
        "raw_reward": 2.0,
        "reward": 3.0,
        "score": 2.9,
        "penalty": -0.1,
        "num_turns": 4.0,
    }


def test_means_are_per_tag_and_non_zero_means_leave_the_zeros_out():
    metrics = rollout_metrics(
        [
            episode(turn("Up", "Up", info={"action_is_valid": 1.0}), status=SOLVED, group=0),
            episode(turn(), status=FAILED, group=1),
            episode(turn("Up", "Up", "Up", "Up"), status=SOLVED, group=2),
            episode(turn("Up"), status=FAILED, group=3, tag="B"),
        ]
    )
    assert metrics["A/success"] == pytest.approx(2 / 3)
    assert metrics["A/non-zero/success"] == 1.0
    assert metrics["A/num_actions"] == 2.0
    assert metrics["A/non-zero/num_actions"] == 3.0
    assert metrics["A/action_is_valid"] == pytest.approx(1 / 3)
    assert metrics["A/non-zero/action_is_valid"] == 1.0
    assert metrics["B/success"] == metrics["B/non-zero/success"] == 0.0
    assert metrics["B/num_actions"] == 1.0


def test_pass_at_k_asks_whether_any_member_of_a_group_succeeded():
    metrics = rollout_metrics(
        [episode(turn(), status=status, group=group) for group, status in enumerate([SOLVED, FAILED])]
        + [episode(turn(), status=status, group=group) for group, status in enumerate([FAILED, FAILED])]
        + [episode(turn(), status=SOLVED, group=2, tag="B")]
    )
    assert metrics["A/pass@2"] == 0.5
    assert metrics["A/success"] == 0.25
    assert metrics["B/pass@1"] == 1.0
    assert "A/pass@1" not in metrics


def test_faults_are_left_out_of_the_means_and_counted():
    metrics = rollout_metrics(
        [
            episode(turn("Up", num_tokens=6), status=SOLVED, group=0),
            episode(status=LOST, group=0),
            episode(turn("Up", num_tokens=2), status=FAILED, group=1),
            episode(turn("Up", num_tokens=4), status=FAILED, group=1),
            episode(status=Status.ENGINE_ERROR, group=2),
            episode(status=LOST, group=2),
        ]
    )
    assert metrics["A/success"] == pytest.approx(1 / 3)
    assert metrics["response_length"] == 4.0
    assert metrics["faults/env_errors"] == 2
    assert metrics["faults/engine_errors"] == 1
    assert metrics["faults/incomplete_groups"] == 2
    # Only group 1 had both of its tries.
    assert metrics["A/pass@2"] == 0.0


def test_without_a_complete_group_there_is_no_pass_at_k():
    metrics = rollout_metrics([episode(turn("Up"), status=SOLVED), episode(status=LOST)])
    assert metrics["A/success"] == 1.0
    assert not any("pass@" in name for name in metrics)


def test_a_rollout_lost_to_faults_has_only_counts():
    metrics = rollout_metrics([episode(status=LOST)])
    assert metrics["faults/env_errors"] == 1
    assert metrics["response_length"] == 0.0
    assert not any(name.startswith("A/") for name in metrics)


def test_no_episodes_are_no_error():
    assert rollout_metrics([])["faults/env_errors"] == 0


def test_the_ledger_counts_everything_that_was_cut():
    ledger = truncation_ledger(
        [
            episode(turn(num_dropped_actions=2), turn(num_dropped_actions=1, stop_reason="length", is_parsed=False)),
            episode(turn(num_dropped_turns=1), turn(num_dropped_turns=3), status=Status.OUT_OF_ACTIONS),
            episode(turn(stop_reason="length"), status=Status.CONTEXT_FULL),
            episode(turn(is_parsed=False), turn(is_parsed=False), status=SOLVED),
        ]
    )
    assert ledger == {
        "truncation/turn_cap": 1,
        "truncation/action_budget": 1,
        "truncation/env_limit": 0,
        "truncation/context": 1,
        "truncation/first_prompt": 0,
        "truncation/dropped_turns": 4,
        "truncation/dropped_actions": 3,
        "truncation/reply_length": 2,
        "truncation/parse_failure": 3,
    }


def test_response_length_is_the_mean_number_of_sampled_tokens_of_an_episode():
    metrics = rollout_metrics([episode(turn(num_tokens=2), turn(num_tokens=3)), episode(turn(num_tokens=1))])
    assert metrics["response_length"] == 3.0
