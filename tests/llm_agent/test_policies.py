"""The solver, the random policy and silence, as players."""

import time

import pytest

from ragen.config import load_config
from ragen.llm_agent.es_manager import EsManager
from ragen.llm_agent.policies import STUCK, OutOfTime, has_solver, play_policy, play_replies, silence, until
from ragen.types import Status

LAKES = ["model_path=tiny", "es_manager.val.env_groups=60", "es_manager.val.env_configs.n_groups=[60]"]


def played(noise: float, *overrides: str):
    config = load_config("quickstart", [*LAKES, *overrides])
    environments = EsManager(config.es_manager.val, config.custom_envs)
    return play_policy(config, environments, noise=noise, base_seed=1)


def test_the_solver_solves_and_the_random_policy_does_worse():
    rates = [sum(episode.is_success for episode in played(noise)) / 60 for noise in (0.0, 0.5, 1.0)]
    assert rates[0] == 1
    assert rates[0] > rates[1] > rates[2]


def test_thoughts_are_hints_of_the_environment_and_only_where_they_are_asked_for():
    thoughts = {turn.thought for episode in played(0.0) for turn in episode.turns}
    assert thoughts and STUCK not in thoughts and "" not in thoughts
    turns = [turn for episode in played(0.0, "agent_proxy.enable_think=False") for turn in episode.turns]
    assert {turn.thought for turn in turns} == {""}
    assert all(turn.is_parsed for turn in turns)


def test_the_same_seed_gives_the_same_replies():
    first, second = ([turn.text for episode in played(0.7) for turn in episode.turns] for _ in range(2))
    assert first == second


def lakes(*overrides: str):
    config = load_config("quickstart", [*LAKES, *overrides])
    return config, EsManager(config.es_manager.val, config.custom_envs)


@pytest.mark.parametrize("think", [True, False])
def test_silence_is_invalid_to_the_last_turn(think):
    config, environments = lakes(f"agent_proxy.enable_think={think}")
    for episode in play_replies(config, environments, silence, base_seed=1):
        assert len(episode.turns) == 5 and episode.num_actions == 0
        assert all(turn.is_invalid and not turn.is_parsed for turn in episode.turns)
        assert episode.score == pytest.approx(-0.5)


def test_a_rollout_whose_time_is_over_is_given_up():
    config, environments = lakes()
    with pytest.raises(OutOfTime):
        play_replies(config, environments, until(time.monotonic() - 1, silence), base_seed=1)
    later = play_replies(config, environments, until(time.monotonic() + 999, silence), base_seed=1)
    assert len(later) == 60


def test_the_random_policy_asks_no_solver(monkeypatch):
    def no_time(self):
        raise AssertionError("the solver was asked")

    monkeypatch.setattr("ragen.llm_agent.es_manager.Seat.solve", no_time)
    assert len(played(1.0)) == 60
    with pytest.raises(AssertionError, match="the solver was asked"):
        played(0.9)


def test_whether_there_is_a_solver_is_asked_on_a_level(monkeypatch):
    _, environments = lakes()
    assert has_solver(environments, "FrozenLake")
    monkeypatch.setattr("ragen.llm_agent.es_manager.Seat.solve", lambda self: None)
    assert not has_solver(environments, "FrozenLake")


@pytest.mark.parametrize("name", ["countdown", "sudoku", "game_2048", "guess_number", "sokoban_levels"])
def test_the_budgets_of_a_shipped_configuration_are_enough_for_its_solver(name):
    """Turns, actions and steps of each layer fit together, and every reply is one that the parser takes."""
    config = load_config(name, ["es_manager.val.env_groups=12", "es_manager.val.group_size=1"])
    environments = EsManager(config.es_manager.val, config.custom_envs)
    episodes = play_policy(config, environments, noise=0.0, base_seed=config.seed.val)
    assert [episode.status for episode in episodes] == [Status.SOLVED] * 12
    assert not any(turn.is_invalid for episode in episodes for turn in episode.turns)
