"""Mutual information of prompts and thoughts: the numbers, the samples, and real episodes."""

import json
from contextlib import nullcontext
from dataclasses import replace
from itertools import product
from math import log
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ragen.diagnostics.collapse import CollapseDetector, draw_turns, matrix_metrics, prompt_ids
from ragen.learners.cross_scoring import cross_logprobs
from ragen.llm_agent.agent_proxy import RolloutPlan
from ragen.llm_agent.build import build_agent, sampling_params
from ragen.llm_agent.es_manager import EsManager, levels_from
from ragen.seeding import Rng
from ragen.tracking.glossary import unknown
from ragen.tracking.timing import Timers
from ragen.types import Episode, Turn
from tests.trainer.runs import BANDIT, LAKE, small_config

CONFIG = small_config(Path("unused"))
FIRST, ANY = "collapse_first_turn_sample", "collapse_trajectory_sample"


# The formulas


def metrics_of(table: list[list[float]], own: list[int], lengths: list[int] | None = None) -> dict[str, float]:
    sums = torch.tensor(table, dtype=torch.float64)
    return matrix_metrics(sums, torch.tensor(lengths or [1] * len(own)), torch.tensor(own), std_eps=1e-3)


def test_four_thoughts_on_three_prompts():
    metrics = metrics_of([[-1, -3, -2], [-1.2, -2.5, -2.5], [-4, -1.5, -3], [-2, -2, -1]], [0, 0, 1, 2])
    expected = {
        "mi_estimate": 0.683491,
        "mi_upper_bound": log(3),
        "conditional_entropy_est": 1.175,
        "reasoning_entropy_est": 1.858491,
        "matched_log_prob_mean": -1.175,
        "marginal_log_prob_mean": -1.858491,
        "marginal_std": 0.295568,
        "mi_zscore": 2.304672,
        "retrieval_accuracy": 1.0,
        "retrieval_chance_level": 1 / 3,
        "retrieval_above_chance": 2 / 3,
    }
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, abs=1e-6)


def test_two_prompts_worked_by_hand():
    metrics = metrics_of([[log(0.6), log(0.2)], [log(0.1), log(0.3)]], [0, 1])
    # p(z) = .4 and .2; the thoughts are 1.5 times as likely after their own prompts.
    assert metrics["mi_estimate"] == metrics["mi_seq_estimate"] == pytest.approx(log(1.5))
    assert metrics["reasoning_entropy_est"] == pytest.approx(-(log(0.4) + log(0.2)) / 2)
    assert metrics["conditional_entropy_seq_est"] == pytest.approx(-(log(0.6) + log(0.3)) / 2)
    assert metrics["marginal_std"] == pytest.approx(log(2) / 2)
    assert metrics["mi_zscore_seq"] == pytest.approx(log(1.5) / (log(2) / 2 + 1e-3))
    assert metrics["retrieval_chance_level"] == 0.5
    assert metrics["retrieval_accuracy@8"] == metrics["retrieval_chance_level@8"] == 1
    assert metrics["retrieval_above_chance@2"] == 0


def test_lengths_divide_the_sums_of_the_per_token_metrics_only():
    long = metrics_of([[-4, -8], [-9, -3]], [0, 1], lengths=[4, 3])
    short = metrics_of([[-1, -2], [-3, -1]], [0, 1])
    per_sequence = metrics_of([[-4, -8], [-9, -3]], [0, 1])
    assert {name: long[name] for name in long if "seq" not in name} == pytest.approx(
        {name: short[name] for name in short if "seq" not in name}
    )
    assert long["mi_seq_estimate"] == per_sequence["mi_seq_estimate"] != long["mi_estimate"]
    assert long["conditional_entropy_seq_est"] == 3.5
    assert long["conditional_entropy_est"] == 1


def test_the_own_prompt_may_be_the_third_best():
    metrics = metrics_of([[-3, -1, -2, -4, -5], [-3, -1, -2, -4, -5]], [0, 1])
    found = [metrics[f"retrieval_accuracy{at}"] for at in ("", "@2", "@4", "@8")]
    chance = [metrics[f"retrieval_chance_level{at}"] for at in ("", "@2", "@4", "@8")]
    assert found == [0.5, 0.5, 1, 1]
    assert chance == pytest.approx([0.2, 0.4, 0.8, 1])
    assert metrics["retrieval_above_chance@4"] == pytest.approx(0.2)


def test_a_policy_blind_to_its_prompts_has_no_information_and_is_retrieved_by_chance():
    metrics = metrics_of([[-2.0] * 4, [-3.0] * 4], [0, 3])
    assert metrics["mi_estimate"] == pytest.approx(0)
    assert [metrics[f"retrieval_above_chance{at}"] for at in ("", "@2", "@4", "@8")] == [0, 0, 0, 0]


def test_a_certain_policy_reaches_the_bound():
    metrics = metrics_of([[0, -1e3, -1e3], [-1e3, 0, -1e3], [-1e3, -1e3, 0]], [0, 1, 2])
    assert metrics["mi_estimate"] == pytest.approx(metrics["mi_upper_bound"]) == pytest.approx(log(3))


# The samples


def turn(thought: str, *, prompt: tuple[int, ...] = (5,), reply: tuple[int, ...] = (6,)) -> Turn:
    return Turn(
        user="",
        prompt_ids=list(prompt),
        response_ids=list(reply),
        logprobs=[],
        text="",
        stop_reason="",
        thought=thought,
    )


def episode(*turns: Turn, group: int = 0, member: int = 0) -> Episode:
    return Episode(tag="A", env_type="", group_id=group, member=member, seed=0, turns=list(turns))


class Letters:
    """A tokenizer: a token for each letter."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        return [ord(letter) for letter in text]


class Judge:
    """Thoughts are likely after prompts that contain their first letter; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[list, list]] = []

    def __call__(self, prompts, continuations) -> tuple[Tensor, Tensor]:
        self.asked.append((list(prompts), list(continuations)))
        table = [[0.0 if z[0] in x else -float(len(z)) for x in prompts] for z in continuations]
        return torch.tensor(table, dtype=torch.float64), torch.tensor([len(z) for z in continuations])


def detector(
    cross: Any = None,
    *,
    tokenizer: Any = None,
    seed: int = 1,
    agent: dict[str, Any] | None = None,
    timer: Any = lambda _: nullcontext(),
    **changes: Any,
) -> CollapseDetector:
    return CollapseDetector(
        replace(CONFIG.collapse_detection, **changes),
        replace(CONFIG.agent_proxy, **(agent or {})),
        cross_logprobs=cross or Judge(),
        tokenizer=tokenizer or Letters(),
        seed=seed,
        timer=timer,
    )


def two_groups(size: int = 3) -> list[Episode]:
    """Two turns an episode; the first prompts hold the letter of the group."""
    groups = product(range(2), range(size))
    return [
        episode(
            turn("ab"[group] * 2, prompt=(1, ord("ab"[group]))),
            turn("cc", prompt=(9, member)),
            group=group,
            member=member,
        )
        for group, member in groups
    ]


def test_it_is_due_at_step_one_and_then_every_few_steps():
    assert [step for step in range(1, 12) if detector(compute_freq=5).is_due(step)] == [1, 5, 10]
    assert not any(detector(compute_freq=0).is_due(step) for step in range(1, 12))


@pytest.mark.parametrize("agent", [{"enable_think": False}, {"context_window_mode": "single_turn"}])
def test_it_needs_thoughts_and_the_full_context(agent):
    assert not detector(agent=agent).is_due(1)


def test_a_prompt_is_everything_before_the_thought():
    played = episode(turn("a", prompt=(1, 2), reply=(3,)), turn("b", prompt=(4,), reply=(5, 6)), turn("c", prompt=(7,)))
    assert [prompt_ids((played, index)) for index in range(3)] == [[1, 2], [1, 2, 3, 4], [1, 2, 3, 4, 5, 6, 7]]


def test_first_turns_of_a_group_share_a_column():
    judge = Judge()
    metrics = detector(judge, multi_turn_enabled=False)(two_groups(), step=1)
    ((prompts, thoughts),) = judge.asked
    assert sorted(prompts) == [(1, ord("a")), (1, ord("b"))]
    assert len(thoughts) == 6
    assert metrics[f"{FIRST}/mi_upper_bound"] == log(2)
    assert metrics[f"{FIRST}/retrieval_accuracy"] == 1
    assert not any(name.startswith(ANY) for name in metrics)


def test_equal_prompts_of_different_groups_are_one_column():
    episodes = [episode(turn("a", prompt=(ord("a"),)), group=group) for group in range(3)]
    episodes.append(episode(turn("b", prompt=(ord("b"),)), group=3))
    metrics = detector()(episodes, step=1)
    for prefix in (FIRST, ANY):
        assert metrics[f"{prefix}/mi_upper_bound"] == log(2)
        assert metrics[f"{prefix}/retrieval_chance_level"] == 0.5


def test_different_prompts_in_one_group_are_different_columns():
    episodes = [episode(turn(letter, prompt=(ord(letter),)), group=0) for letter in "abc"]
    assert detector()(episodes, step=1)[f"{FIRST}/mi_upper_bound"] == log(3)


def test_fewer_than_two_prompts_give_rates_only():
    alike = [episode(turn("a")) for _ in range(4)]
    watch = detector()
    assert set(watch(alike, step=1)) == {
        "collapse/valid_thinking_rate",
        "collapse/first_turn_num_total",
        "collapse/first_turn_num_valid",
        "collapse/first_turn_valid_rate",
    }
    assert watch.to_json() == {}
    assert detector()([], step=1) == {}
    assert detector()([episode()], step=1) == {}


def test_empty_thoughts_are_counted_and_left_out():
    judge = Judge()
    episodes = [
        episode(turn(" "), turn("b", prompt=(2,))),
        episode(turn("a"), turn("")),
        episode(turn("", prompt=(3,)), group=1),
    ]
    metrics = detector(judge)(episodes, step=1)
    assert metrics["collapse/valid_thinking_rate"] == 2 / 5
    assert metrics["collapse/first_turn_num_total"] == 3
    assert metrics["collapse/first_turn_num_valid"] == 1
    assert metrics["collapse/first_turn_valid_rate"] == 1 / 3
    ((prompts, thoughts),) = judge.asked  # one first turn is no sample
    assert sorted(prompts) == [(5,), (5, 6, 2)]
    assert sorted(thoughts) == [[ord("a")], [ord("b")]]


def test_draws_are_different_turns_and_none_is_lost():
    turns = [(played, index) for played in two_groups(4) for index in range(2)]
    for count in (1, 5, 16, 99):
        drawn = draw_turns(turns, count, Rng(count))
        assert len({(id(played), index) for played, index in drawn}) == len(drawn) == min(count, 16)


def test_episodes_are_equally_likely_whatever_their_length():
    long, short = episode(*(turn("a") for _ in range(9))), episode(turn("a"))
    turns = [(long, index) for index in range(9)] + [(short, 0)]
    hits = sum(draw_turns(turns, 1, Rng(seed))[0][0] is short for seed in range(400))
    assert 160 < hits < 240


def test_the_sample_is_as_large_as_asked_for():
    judge = Judge()
    detector(judge, num_samples=4)(two_groups(), step=1)
    assert [len(thoughts) for _, thoughts in judge.asked] == [4, 4]
    detector(judge, num_samples="all")(two_groups(), step=1)
    assert [len(thoughts) for _, thoughts in judge.asked[2:]] == [6, 12]


def test_seed_and_step_fix_the_sample():
    def asked(seed: int, step: int) -> list:
        judge = Judge()
        detector(judge, seed=seed, num_samples=4)(two_groups(8), step=step)
        return judge.asked

    assert asked(1, 5) == asked(1, 5)
    assert asked(1, 5) != asked(2, 5)
    assert asked(1, 5) != asked(1, 10)


def test_running_deviations_start_at_the_first_value_and_continue_from_a_checkpoint():
    def table(scale: float):
        return lambda x, z: (torch.tensor([[-1.0, -2.0], [-3.0, -1.0]]).double() * scale, torch.tensor([1, 1]))

    episodes = [episode(turn("a", prompt=(1,))), episode(turn("b", prompt=(2,)), group=1)]
    watch = detector(table(1.0), num_samples="all", ema_decay=0.75)
    first = watch(episodes, step=1)
    assert first[f"{ANY}/marginal_std_ema"] == pytest.approx(first[f"{ANY}/marginal_std"])
    assert first[f"{ANY}/mi_zscore_ema_seq"] == pytest.approx(first[f"{ANY}/mi_zscore_seq"])

    saved = json.loads(json.dumps(watch.to_json()))
    watch.cross_logprobs = table(2.0)
    second = watch(episodes, step=5)
    expected = 0.75 * first[f"{ANY}/marginal_std"] + 0.25 * second[f"{ANY}/marginal_std"]
    assert second[f"{ANY}/marginal_std_ema"] == pytest.approx(expected)
    assert second[f"{ANY}/mi_zscore_ema"] == pytest.approx(second[f"{ANY}/mi_estimate"] / (expected + 1e-3))

    resumed = detector(table(2.0), num_samples="all", ema_decay=0.75)
    resumed.load(saved)
    assert resumed(episodes, step=5) == second
    assert resumed.to_json() == watch.to_json()


def test_every_metric_and_timing_has_a_line_in_the_glossary():
    timers = Timers()
    with timers("step"), timers("collapse_metrics"):
        metrics = detector(timer=timers)(two_groups(), step=1)
    metrics |= timers.finish_step()
    assert unknown(metrics) == []
    assert metrics["timing_s/collapse_first_turn_step"] > 0
    assert metrics["timing_s/collapse_multi_turn_total"] > 0
    assert len(metrics) > 2 * 27


# Real episodes


def play(env: tuple[str, ...], *changes: str):
    """A rollout of the embedded model, the prompts its engine saw, its chat, and a detector on its weights."""
    config = small_config(Path("unused"), *changes, env=env)
    environments = EsManager(config.es_manager.train, config.custom_envs)
    tag = config.custom_envs[config.es_manager.train.env_configs.tags[0]]
    agent = build_agent(config, env_types=[tag.env_type], device="cpu")
    seen: list[tuple[int, ...]] = []
    submit = agent.engine.submit
    agent.engine.submit = lambda request: (seen.append(tuple(request.prompt_ids)), submit(request))[1]  # type: ignore[method-assign]
    params = sampling_params(config, agent.chat, is_validation=False)
    episodes = agent.rollout(
        environments, RolloutPlan(levels=levels_from(3, environments.num_groups), noise_seed=4, params=params)
    )
    assert agent.chat is not None

    def cross(prompts, continuations):
        return cross_logprobs(agent.engine.model, prompts, continuations, micro_batch_size=128)

    return episodes, seen, agent.chat, detector(cross, tokenizer=agent.chat.tokenizer)


def test_prompts_are_what_the_engine_read_and_end_with_the_think_tag():
    episodes, seen, chat, _ = play(LAKE)
    prompts = [tuple(prompt_ids((played, index))) for played in episodes for index in range(len(played.turns))]
    assert sorted(prompts) == sorted(seen)
    assert any(len(played.turns) == 2 for played in episodes)
    assert all(chat.decode(prompt).endswith("<think>") for prompt in prompts)


def test_thoughts_of_the_embedded_model_depend_on_their_prompts():
    episodes, _, _, watch = play(LAKE)
    metrics = watch(episodes, step=1)
    watch.load({})
    assert watch(episodes, step=1) == metrics
    for prefix in (FIRST, ANY):
        assert 0.5 < metrics[f"{prefix}/mi_seq_estimate"] <= metrics[f"{prefix}/mi_upper_bound"]
        assert metrics[f"{prefix}/retrieval_above_chance"] > 0.2
    assert metrics["collapse/valid_thinking_rate"] > 0.8
    # The same thoughts, dealt to other turns, tell nothing about their prompts.
    turns = [played_turn for played in episodes for played_turn in played.turns]
    dealt = Rng(1).sample([played_turn.thought for played_turn in turns], len(turns))
    for played_turn, thought in zip(turns, dealt, strict=True):
        played_turn.thought = thought
    assert watch(episodes, step=1)[f"{ANY}/mi_seq_estimate"] < metrics[f"{ANY}/mi_seq_estimate"] - 0.5


def test_bandit_groups_have_one_prompt_each():
    episodes, seen, _, watch = play(BANDIT, "es_manager.train.env_groups=8")
    by_group = {played.group_id: tuple(prompt_ids((played, 0))) for played in episodes}
    assert all(tuple(prompt_ids((played, 0))) == by_group[played.group_id] for played in episodes)
    metrics = watch(episodes, step=1)
    assert metrics[f"{FIRST}/mi_upper_bound"] == log(len(set(seen)))
    assert metrics[f"{FIRST}/retrieval_accuracy"] > metrics[f"{FIRST}/retrieval_chance_level"]
    assert metrics["collapse/first_turn_num_total"] == 32
