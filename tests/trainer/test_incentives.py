"""What pays: valid replies against invalid ones, where the advantages lie, log-probs of solved episodes, entropies."""

import pytest
import torch

from ragen.tracking.glossary import unknown
from ragen.trainer.incentives import (
    entropy_by_turn,
    incentive_metrics,
    invalid_advantages,
    solved_logprob,
    valid_minus_invalid,
)
from ragen.trainer.scoring import samples_of
from ragen.types import Episode, Group, Status
from tests.trainer.runs import LAKE, episode, small_config, train


def played(member: int, replies: list[tuple[str, float]], *, group_id: int = 0) -> Episode:
    """An episode of valid and invalid replies, each with what its turn earned."""
    made = episode(member, [reward for _, reward in replies], group_id=group_id)
    for turn, (kind, _) in zip(made.turns, replies, strict=True):
        turn.info["manager_invalid_action"] = float(kind == "invalid")
    return made


def mixed() -> Group:
    """Scores 1 and -2; one of the four replies is invalid."""
    first = played(0, [("valid", -1.0), ("valid", 2.0)])
    return Group(group_id=0, episodes=[first, played(1, [("valid", 0.0), ("invalid", -2.0)])])


def test_the_reward_of_a_reply_is_that_of_its_episode():
    # valid: 1, 1, -2 -> 0; invalid: -2
    assert valid_minus_invalid([mixed()], use_turn_scores=False) == 2.0


def test_with_turn_scores_the_reward_of_a_reply_is_that_of_its_turn():
    group = mixed()
    group.episodes[1].turns[1].penalty = -0.5
    # valid: -1, 2, 0 -> 1/3; invalid: -2 - .5
    assert valid_minus_invalid([group], use_turn_scores=True) == pytest.approx(1 / 3 + 2.5)


def test_the_difference_is_taken_within_groups_that_hold_both_kinds():
    easy = Group(group_id=1, episodes=[played(0, [("valid", 10.0)]), played(1, [("invalid", 9.0)])])
    one_kind = Group(group_id=2, episodes=[played(0, [("invalid", -100.0)]), played(1, [("invalid", -100.0)])])
    assert valid_minus_invalid([mixed(), easy, one_kind], use_turn_scores=False) == 1.5  # of 2 and 1
    assert valid_minus_invalid([one_kind], use_turn_scores=False) is None
    assert valid_minus_invalid([], use_turn_scores=False) is None


def test_the_logprob_of_solved_episodes_is_a_mean_over_tokens():
    solved, failed = played(0, [("valid", 1.0), ("valid", 1.0)]), played(1, [("valid", 0.0)])
    solved.status = Status.SOLVED
    solved.turns[0].logprobs, solved.turns[1].logprobs = [-1.0, -2.0, -3.0], [-6.0]
    assert solved_logprob([solved, failed]) == -3.0
    assert solved_logprob([failed]) is None


def test_entropies_are_a_mean_over_the_tokens_of_each_turn():
    long, short = played(0, [("valid", 0.0), ("valid", 0.0)]), played(1, [("valid", 0.0)])
    long.turns[0].response_ids, long.turns[0].entropies = [1, 2, 3], [0.1, 0.2, 0.3]
    long.turns[1].entropies, short.turns[0].entropies = [0.7], [0.6]
    assert entropy_by_turn([long, short]) == pytest.approx({"entropy/turn_1": 0.3, "entropy/turn_2": 0.7})


def test_what_a_rollout_says_nothing_about_is_left_out():
    group = Group(group_id=0, episodes=[played(0, [("valid", 0.0)]), played(1, [("valid", 0.0)])])
    assert incentive_metrics([group], use_turn_scores=False) == {}  # one kind, nothing solved, no entropies
    assert incentive_metrics([], use_turn_scores=False) == {}


@pytest.mark.parametrize("mode", ["full", "single_turn"])
def test_the_advantages_on_invalid_replies_are_weighed_in_every_context_mode(tmp_path, mode):
    samples = samples_of([mixed()], small_config(tmp_path, f"agent_proxy.context_window_mode={mode}", env=LAKE))
    width = max(len(sample.input_ids) for sample in samples)
    mask = torch.tensor([sample.loss_mask + [0] * (width - len(sample.loss_mask)) for sample in samples]).float()
    advantages = torch.zeros_like(mask)
    advantages[mask.bool()] = torch.tensor([1.0, 1.0, -2.0, -4.0])  # of the four replies, a token each
    assert invalid_advantages(advantages, mask, samples) == {
        "incentive/invalid_advantage_mass": 0.5,
        "incentive/invalid_advantage_mean": -4.0,
    }


def test_without_advantages_or_without_invalid_replies_there_is_no_share_or_no_mean(tmp_path):
    valid = Group(group_id=0, episodes=[played(0, [("valid", 1.0)]), played(1, [("valid", 0.0)])])
    samples = samples_of([valid], small_config(tmp_path, env=LAKE))
    mask = torch.tensor([sample.loss_mask for sample in samples]).float()
    assert invalid_advantages(mask, mask, samples) == {"incentive/invalid_advantage_mass": 0.0}
    assert invalid_advantages(mask * 0, mask, samples) == {}


def test_a_run_logs_what_pays(tmp_path):
    """Hot sampling: some replies are invalid, and some are not."""
    hot = ("actor_rollout_ref.rollout.temperature=2.0", "trainer.val_before_train=False", "trainer.save_freq=-1")
    run = train(tmp_path, *hot, "trainer.total_training_steps=1", "trainer.test_freq=-1", env=LAKE)
    row = run.metrics[1]
    found = {name for name in row if name.startswith(("incentive/", "entropy/"))}
    assert {"incentive/invalid_advantage_mass", "entropy/turn_1", "entropy/turn_2"} <= found
    assert "entropy/turn_3" not in row and unknown(found) == []
    assert 0 <= row["incentive/invalid_advantage_mass"] <= 1
