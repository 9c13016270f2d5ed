"""From groups to a scored batch."""

from collections import Counter
from statistics import fmean

import pytest
import torch

from ragen.learners.batch import make_batch
from ragen.trainer.scoring import _add_turns, data_metrics, drawn_samples, note_advantages, samples_of
from ragen.types import Group, Sample
from tests.trainer.runs import LAKE, episode, small_config, train


def sample(member: int, *, rewards: list[float], states: list[str]) -> Sample:
    """Two prompt tokens and one sampled token per turn."""
    length = 3 * len(rewards)
    return Sample(
        group_id=0,
        member=member,
        input_ids=list(range(length)),
        loss_mask=[0, 0, 1] * len(rewards),
        logprobs=[0.0, 0.0, -1.0] * len(rewards),
        turn_spans=[(3 * turn + 2, 3 * turn + 3) for turn in range(len(rewards))],
        turn_scores=[0.0] * (len(rewards) - 1) + [sum(rewards)],
        turn_states=states,
        turn_rewards=rewards,
    )


def test_the_returns_of_gigpo_look_ahead_in_every_context_mode():
    whole = [sample(0, rewards=[1.0, 0.0, 4.0], states=["a", "b", "c"]), sample(1, rewards=[2.0], states=["a"])]
    batch = make_batch(whole, {})
    _add_turns(batch, whole, gamma=0.5)
    # 4 -> 0 + .5 * 4 = 2 -> 1 + .5 * 2 = 2
    assert batch.step_returns is not None and batch.anchors is not None and batch.turn_ids is not None
    assert batch.step_returns.tolist() == [[2.0, 2.0, 4.0], [2.0, 0.0, 0.0]]
    assert batch.anchors.tolist() == [[0, 1, 2], [0, -1, -1]]
    assert batch.turn_ids[0].tolist() == [-1, -1, 0, -1, -1, 1, -1, -1, 2]

    turns = [sample(0, rewards=[reward], states=[state]) for reward, state in zip([1.0, 0.0, 4.0], "abc")]
    turns.append(sample(1, rewards=[2.0], states=["a"]))
    batch = make_batch(turns, {})
    _add_turns(batch, turns, gamma=0.5)
    assert batch.step_returns is not None and batch.anchors is not None
    assert batch.step_returns.tolist() == [[2.0], [2.0], [4.0], [2.0]]
    assert batch.anchors.tolist() == [[0], [1], [2], [0]]


def test_the_measured_samples_are_drawn_anew_by_every_seed():
    first, second = drawn_samples(100, seed=1), drawn_samples(100, seed=2)
    assert first == drawn_samples(100, seed=1) != second
    assert len(set(first)) == len(first) == 8 and max(first) < 100
    assert drawn_samples(5, seed=1) == [0, 1, 2, 3, 4]
    counts = Counter(index for seed in range(1000) for index in drawn_samples(16, seed=seed))
    assert all(400 < counts[index] < 600 for index in range(16))  # half of 1000, five standard deviations


def test_every_turn_of_an_episode_carries_its_whole_score_in_the_limited_modes(tmp_path):
    group = Group(group_id=0, episodes=[episode(0, [1.0, 2.0]), episode(1, [5.0])])
    full = samples_of([group], small_config(tmp_path, env=LAKE))
    assert [sample.turn_scores for sample in full] == [[0.0, 3.0], [5.0]]
    limited = small_config(tmp_path, "agent_proxy.context_window_mode=single_turn", env=LAKE)
    assert [sample.turn_scores for sample in samples_of([group], limited)] == [[3.0], [3.0], [5.0]]


@pytest.mark.parametrize("mode", ["full", "single_turn"])
def test_turns_keep_their_advantages_in_every_context_mode(tmp_path, mode):
    group = Group(group_id=0, episodes=[episode(0, [1.0, 2.0]), episode(1, [5.0])])
    group.episodes[1].turns[0].response_ids, group.episodes[1].turns[0].logprobs = [3, 4], [-1.0, -1.0]
    config = small_config(tmp_path, f"agent_proxy.context_window_mode={mode}", env=LAKE)
    batch = make_batch(samples_of([group], config), {})
    batch.advantages = torch.full(batch.mask.shape, 99.0)
    batch.advantages[batch.mask.bool()] = torch.tensor([0.12346, -1.0, 0.5, 0.5])
    note_advantages([group], batch)
    # To four decimals; tokens that share a number are written as one.
    assert [[turn.advantages for turn in each.turns] for each in group.episodes] == [[[0.1235], [-1.0]], [[0.5]]]
    batch.advantages[batch.mask.bool()] = torch.tensor([0.0, 0.0, 0.5, -1e-9])
    note_advantages([group], batch)
    assert str(group.episodes[1].turns[0].advantages) == "[0.5, 0.0]"


@pytest.mark.parametrize(("estimator", "is_shared"), [("grpo", True), ("gae", False)])
def test_a_run_writes_the_advantages_of_the_groups_it_trained_on(tmp_path, estimator, is_shared):
    strict = ["actor_rollout_ref.rollout.rollout_filter_strategy=top_k", "ppo_mini_batch_size=4"]
    changes = [*strict, "actor_rollout_ref.rollout.rollout_filter_value=0.34"]
    run = train(tmp_path, f"algorithm.adv_estimator={estimator}", *changes, env=LAKE)
    # In the first step the values of a new critic are all the same.
    trained = [each for each in run.episodes(2) if any(turn.advantages for turn in each.turns)]
    assert len({each.group_id for each in trained}) == 1 and len(trained) == 4  # one group of three was kept
    turns = [turn for each in trained for turn in each.turns]
    sizes = {len(turn.advantages) == 1 for turn in turns if len(turn.response_ids) > 1}
    assert sizes == {is_shared}
    numbers = [
        value
        for turn in turns
        for value in (turn.advantages * len(turn.response_ids) if is_shared else turn.advantages)
    ]
    assert fmean(numbers) == pytest.approx(run.metrics[2]["critic/advantages/mean"], abs=1e-4)
    assert max(numbers) == pytest.approx(run.metrics[2]["critic/advantages/max"], abs=1e-4)


def test_data_metrics_count_sampled_tokens_only():
    batch = make_batch([sample(0, rewards=[1.0, 2.0], states=["", ""]), sample(1, rewards=[5.0], states=[""])], {})
    batch.advantages = torch.where(batch.mask.bool(), 2.0, 99.0)
    metrics = data_metrics(batch)
    assert metrics["critic/score/mean"] == 4.0 and metrics["critic/advantages/max"] == 2.0
    assert (metrics["response_length/min"], metrics["response_length/max"]) == (1, 2)
    assert (metrics["prompt_length/mean"], metrics["global_seqlen/mean"]) == (3.0, 4.5)
