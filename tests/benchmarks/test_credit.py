"""Every estimator against exact gradients: closed forms, enumerated groups, drawn batches, the tables of the docs."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch

from ragen.algorithms.advantage import ESTIMATORS
from ragen.algorithms.losses import PolicyInputs, ppo
from ragen.algorithms.masked import LOSS_AGG_MODES, token_weights
from ragen.types import Group

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from credit import AGGREGATION_ARMS, ARMS, NO_STD, REWARD_ARMS, SECTIONS, UNDISCOUNTED, arm, exact_rows
from parts.decisions import (
    LEFT,
    MOVE,
    PROCESSES,
    PULL,
    RIGHT,
    STAY,
    STOP,
    Node,
    Outcome,
    Policy,
    Process,
    exact_gradient,
    stopping_bandit,
    trajectories,
)
from parts.laboratory import UNBIASED, Laboratory, Measured, configure, score
from parts.tabular import TabularWorkers
from parts.turn_baselines import per_turn_index, turn_leave_one_out

ALGORITHMS = Path(__file__).parents[2] / "docs" / "algorithms.md"
LABORATORIES = {name: Laboratory.of(process()) for name, process in PROCESSES.items()}
DRAWN = 40
SURE = 0.999
"""Confidence of the bands that decide here: some thirty are looked at."""


# --- the exact gradient


def test_the_gradient_of_a_two_state_chain_is_its_closed_form():
    """Two turns from A; x = P(move | A), y = P(stay | B), 1 for ending in B: J = (1 - x) x + x y."""
    a, after_a, after_b = Node("A", 1), Node("A", 2), Node("B", 2)
    process = Process(
        name="two states",
        levels=(a,),
        nodes={
            a: {(STAY,): [Outcome(1.0, 0.0, after_a)], (MOVE,): [Outcome(1.0, 0.0, after_b)]},
            after_a: {(STAY,): [Outcome(1.0, 0.0, None)], (MOVE,): [Outcome(1.0, 1.0, None)]},
            after_b: {(STAY,): [Outcome(1.0, 1.0, None)], (MOVE,): [Outcome(1.0, 0.0, None)]},
        },
    )
    assert len(trajectories(process)) == 4
    policy = Policy(process, seed=0)
    x, y = (policy.logprobs().exp()[policy.index[seen, (), token]].item() for seen, token in [("A", MOVE), ("B", STAY)])
    by_x, by_y = x * (1 - x) * (1 - 2 * x + y), y * (1 - y) * x
    expected = {("A", (), STAY): -by_x, ("A", (), MOVE): by_x, ("B", (), STAY): by_y, ("B", (), MOVE): -by_y}
    found = exact_gradient(policy)
    assert {choice: found[i].item() for choice, i in policy.index.items()} == pytest.approx(expected)


def test_the_gradient_of_the_stopping_bandit_is_its_closed_form():
    """Pulling in turn k is worth what the arms pay and the next turn is worth; stopping is worth .5."""
    policy = LABORATORIES["stopping bandit"].policy
    probability = {choice: policy.logprobs().exp()[i].item() for choice, i in policy.index.items()}
    value, reached, expected = {4: 0.0}, 1.0, {}
    for turn in (3, 2, 1):
        seen = f"turn {turn}"
        right = probability[seen, (PULL,), RIGHT]
        pull = probability[seen, (), PULL]
        value[turn] = (1 - pull) * 0.5 + pull * (0.3 + 0.3 * right + value[turn + 1])
    for turn in (1, 2, 3):
        seen = f"turn {turn}"
        right, pull = probability[seen, (PULL,), RIGHT], probability[seen, (), PULL]
        gain = reached * pull * (1 - pull) * (0.3 + 0.3 * right + value[turn + 1] - 0.5)
        arms = reached * pull * right * (1 - right) * 0.3
        expected |= {(seen, (), PULL): gain, (seen, (), STOP): -gain}
        expected |= {(seen, (PULL,), RIGHT): arms, (seen, (PULL,), LEFT): -arms}
        reached *= pull
    found = exact_gradient(policy)
    assert {choice: found[i].item() for choice, i in policy.index.items()} == pytest.approx(expected)


@pytest.mark.parametrize("name", PROCESSES)
def test_all_episodes_and_all_pairs_are_listed(name):
    laboratory = LABORATORIES[name]
    assert sum(laboratory.probabilities) == pytest.approx(1)
    assert laboratory.all_pairs[1].sum().item() == pytest.approx(1)


def test_the_estimate_is_the_gradient_of_the_trainers_loss():
    laboratory, weighed = LABORATORIES["chain"], ARMS["`token-mean`"]
    groups = laboratory.drawn(1, seed=3)[0]
    workers = TabularWorkers(laboratory.policy, laboratory.reference, {})
    batch = score(groups, configure(weighed.settings), workers)
    logits = laboratory.policy.logits.float().requires_grad_()
    choices = workers.choices(batch)
    logprobs = torch.where(choices >= 0, laboratory.policy.logprobs(logits)[choices.clamp(min=0)], 0.0)
    inputs = PolicyInputs(
        logprobs=logprobs,
        old_logprobs=batch.old_logprobs,
        advantages=batch.advantages,
        mask=batch.mask,
        clip_low=0.2,
        clip_high=0.28,
        clip_c=3.0,
    )
    (ppo(inputs)[0] * token_weights(batch.mask, "token-mean")).sum().backward()
    assert torch.allclose(-logits.grad, laboratory.estimates(weighed, [groups])[0].float(), atol=1e-6)


# --- exact expectations


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("name", ARMS)
def test_the_exact_mean_of_an_estimator_is_what_is_claimed(name, process):
    each, found = ARMS[name], LABORATORIES[process].measure(ARMS[name])
    if process in each.biased_in:
        assert found.angle > 0.05
        return
    assert found.angle < 0.002, "rounding of float32 is all that is allowed"
    if each.claim == UNBIASED:
        assert found.factor == pytest.approx(1, abs=1e-4)


def test_every_estimator_and_aggregation_is_measured():
    measured = {configure(each.settings).algorithm.estimator for each in REWARD_ARMS.values()}
    assert set(ESTIMATORS) <= measured
    modes = {configure(each.settings).actor_rollout_ref.actor.loss_agg_mode for each in AGGREGATION_ARMS.values()}
    assert modes == set(LOSS_AGG_MODES)


def test_a_group_of_two_halves_the_gradient_of_dr_grpo():
    for laboratory in LABORATORIES.values():
        assert laboratory.measure(ARMS["`grpo` without std"]).factor == pytest.approx(0.5, abs=1e-4)


@pytest.mark.parametrize("name", ["`gae`, not whitened", "bi-level, γ_H = 1, not whitened"])
def test_with_lambda_one_any_critic_will_do_but_for_the_noise(name):
    laboratory = LABORATORIES["stopping bandit"]
    pairs, weights = laboratory.all_pairs
    values = laboratory.values(ARMS[name])
    wrong = dict(zip(values, torch.randn(len(values), generator=torch.Generator().manual_seed(0)).tolist()))
    estimates = laboratory.estimates(ARMS[name], pairs, values=wrong)
    found = Measured.of(estimates, exact_gradient(laboratory.policy), weights)
    assert found.factor == pytest.approx(1, abs=1e-4) and found.angle < 0.002
    assert found.noise > 2 * laboratory.measure(ARMS[name]).noise


def test_a_discount_gives_the_mean_of_discounted_credit_which_is_another_direction():
    laboratory = LABORATORIES["stopping bandit"]
    policy, scores = laboratory.policy, laboratory.policy.scores()
    credit = torch.zeros(len(scores), dtype=torch.float64)
    for probability, trajectory in zip(laboratory.probabilities, laboratory.trajectories):
        choices = policy.chosen_in(trajectory)
        for t, choice in enumerate(choices):  # the whole reward stands at the last token
            credit += probability * 0.9 ** (len(choices) - 1 - t) * trajectory.reward * scores[choice]
    found = laboratory.measure(ARMS["`gae`, γ = .9, not whitened"])
    assert torch.allclose(found.mean, credit, atol=1e-6)


def test_bi_level_gae_with_a_small_lambda_needs_replies_whose_length_is_no_choice():
    """The value before the last token is that of a moment which the policy chooses: its mean is not the state's."""
    bi_level = ARMS["bi-level, γ_H = 1, λ = .5, not whitened"]
    assert LABORATORIES["stopping bandit"].measure(bi_level).factor == pytest.approx(1.038, abs=1e-3)
    equal_lengths = Laboratory.of(stopping_bandit(stop=(STOP, LEFT))).measure(bi_level)
    assert equal_lengths.factor == pytest.approx(1, abs=1e-4) and equal_lengths.angle < 0.002


def steps_of_gigpo(laboratory: Laboratory, batches: list[list[Group]]) -> torch.Tensor:  # [batches, choices]
    """The part of GiGPO that compares turns which began in the same state, without std and discount."""
    settings = NO_STD | UNDISCOUNTED
    with_steps, without = arm("gigpo", settings), arm("gigpo", settings | {"algorithm.gigpo_step_weight": 0.0})
    return laboratory.estimates(with_steps, batches) - laboratory.estimates(without, batches)


def test_gigpo_shrinks_the_gradient_of_a_state_by_how_seldom_it_is_reached():
    """Of two episodes, both have to be there: half the gradient, times the probability that the other one is."""
    laboratory = LABORATORIES["stopping bandit"]
    pairs, weights = laboratory.all_pairs
    mean, exact = weights @ steps_of_gigpo(laboratory, pairs), exact_gradient(laboratory.policy)
    logprobs, index, reached = laboratory.policy.logprobs(), laboratory.policy.index, 1.0
    for turn in ("turn 1", "turn 2", "turn 3"):
        of_turn = [i for (seen, _, _), i in index.items() if seen == turn]
        assert torch.allclose(mean[of_turn], reached / 2 * exact[of_turn], atol=1e-6)
        reached *= logprobs[index[turn, (), PULL]].exp().item()


def test_gigpo_compares_an_episode_with_its_own_future_where_states_come_back():
    for name, laboratory in LABORATORIES.items():
        alone = [[laboratory.group([number], number)] for number in range(len(laboratory.trajectories))]
        probabilities = torch.tensor(laboratory.probabilities, dtype=torch.float64)
        found = Measured.of(steps_of_gigpo(laboratory, alone), exact_gradient(laboratory.policy), probabilities)
        if name == "loop":
            assert found.factor == pytest.approx(0.188, abs=1e-3) and found.angle == pytest.approx(33.2, abs=0.1)
        else:
            assert found.mean.abs().max() == 0


# --- the bandit that may stop (verl issue 7244)


def test_turn_baselines_on_numbers_worked_by_hand():
    batch = {
        "mask": torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]]),
        "groups": torch.tensor([0, 0]),
        "turn_ids": torch.tensor([[0, 0, 1], [0, 0, -1]]),
    }
    returns = torch.tensor([[3.0, 2.0], [3.0, 0.0]])  # rewards [1, 2] and [3]
    by_index, _ = per_turn_index(**batch, anchors=torch.tensor([[0, 1], [0, -1]]), step_returns=returns)
    assert by_index.tolist() == [[-1, -1, 0], [1, 1, 0]]
    left_out, _ = turn_leave_one_out(**batch, step_returns=returns)
    assert left_out.tolist() == [[0, 0, 2], [0, 0, 0]]


def test_a_mean_per_turn_index_takes_the_mean_reward_from_every_further_turn():
    """In large groups it follows the gradient of another bandit, in which every turn costs what it pays on average."""
    laboratory = LABORATORIES["stopping bandit"]
    rewards: dict[int, list[tuple[float, float]]] = {}
    for probability, trajectory in zip(laboratory.probabilities, laboratory.trajectories):
        for node, _, reward in trajectory.turns:
            rewards.setdefault(node.turn, []).append((probability, reward))
    cost = {turn: sum(p * r for p, r in found) / sum(p for p, _ in found) for turn, found in rewards.items()}
    nodes = {
        node: {
            reply: [outcome._replace(reward=outcome.reward - cost[node.turn]) for outcome in outcomes]
            for reply, outcomes in replies.items()
        }
        for node, replies in laboratory.policy.process.nodes.items()
    }
    other = Process(name="with costs", levels=laboratory.policy.process.levels, nodes=nodes)
    batches = laboratory.estimates(
        ARMS["mean per turn index"], laboratory.drawn(40, seed=5, num_groups=1, group_size=128)
    )
    with_costs = Measured.of(batches, exact_gradient(Policy(other, seed=1)))
    assert with_costs.angle_band(SURE)[0] == 0 and with_costs.factor == pytest.approx(1, abs=0.1)
    assert Measured.of(batches, exact_gradient(laboratory.policy)).angle_band(SURE)[0] > 45


# --- drawn batches


@pytest.mark.parametrize(
    "name",
    [
        "`rloo`",
        "`arpo`",
        "`gae`, not whitened",
        "`gae`, λ = .5, not whitened",
        "bi-level, γ_H = 1, not whitened",
        "turn-wise leave-one-out",
        "`rloo`, k1",
        "`gae`, k1, not whitened",
    ],
)
def test_unbiased_estimators_stay_in_their_band(name):
    for process, laboratory in LABORATORIES.items():
        assert laboratory.measure(ARMS[name], num_batches=DRAWN).is_in_band(SURE), process


@pytest.mark.parametrize(
    "name",
    [
        "`gae`, λ = .5, values 0, not whitened",
        "`gae`, γ = .9, not whitened",
        "mean per turn index",
        "`rloo`, k2",
        "`rloo`, k3",
        "`rloo`, abs",
        "`gigpo` without std, γ_H = 1, k1",
        "`seq-mean-token-mean`",
    ],
)
def test_biased_estimators_leave_theirs_where_an_episode_may_stop(name):
    found = LABORATORIES["stopping bandit"].measure(ARMS[name], num_batches=DRAWN)
    assert found.angle_band(SURE)[0] > 0 and not found.is_in_band(SURE)


def test_bi_level_gae_charges_no_earlier_turn_for_the_kl_inside_a_later_one():
    bi_level, laboratory = ARMS["bi-level, γ_H = 1, k1, not whitened"], LABORATORIES["stopping bandit"]
    assert laboratory.measure(bi_level).factor == pytest.approx(1.31, abs=0.01)
    assert not laboratory.measure(bi_level, num_batches=DRAWN).is_in_band(SURE)


def test_what_whitening_costs_is_gone_in_a_batch_of_usual_size():
    laboratory, gae = LABORATORIES["chain"], ARMS["`gae`"]
    assert laboratory.measure(gae).angle > 25, "one group of two"
    low, high = laboratory.measure(gae, num_batches=DRAWN).angle_band()
    assert low == 0 and high < 15, "four groups of eight"


def test_bands_hold_what_they_promise():
    """Drawn 300 times from the groups of two, whose mean is known."""
    laboratory = LABORATORIES["stopping bandit"]
    pairs, weights = laboratory.all_pairs
    estimates = laboratory.estimates(ARMS["`rloo`"], pairs)
    exact = exact_gradient(laboratory.policy)
    generator = torch.Generator().manual_seed(0)
    drawn = [estimates[torch.multinomial(weights, 200, replacement=True, generator=generator)] for _ in range(300)]
    is_held = [Measured.of(batches, exact).is_in_band() for batches in drawn]
    assert sum(is_held) / 300 == pytest.approx(0.95, abs=0.035)


# --- the documentation


def numbers_of(rows: list[str]) -> dict[str, list[float]]:
    """| name | 1.00 | 0.0 | ... | -> {"name": [1.0, 0.0, ...]}; rows of other tables are left out."""
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows if row.startswith("| ")]
    is_number = re.compile(r"-?\d+\.\d+").fullmatch
    return {name: [*map(float, values)] for name, *values in cells if len(values) == 9 and all(map(is_number, values))}


def test_the_exact_tables_of_the_documentation_are_those_of_the_command():
    """To the last digit but one: some numbers lie where rounding turns."""
    documented = numbers_of(ALGORITHMS.read_text().splitlines())
    printed = numbers_of([row for arms in SECTIONS.values() for row in exact_rows(arms, LABORATORIES)])
    assert documented.keys() == printed.keys() == ARMS.keys()
    for name, numbers in printed.items():
        assert documented[name] == pytest.approx(numbers, abs=0.11), name
        assert documented[name][::3] == pytest.approx(numbers[::3], abs=0.011), name
        assert documented[name][2::3] == pytest.approx(numbers[2::3], abs=0.011), name


def test_the_tables_of_drawn_batches_have_every_estimator():
    drawn = [line for line in ALGORITHMS.read_text().splitlines() if line.startswith("| ") and " ± " in line]
    assert [line.split("|")[1].strip() for line in drawn] == list(ARMS)
