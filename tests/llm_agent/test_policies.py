"""The solver and the random policy, as players."""

from ragen.config import load_config
from ragen.llm_agent.es_manager import EsManager
from ragen.llm_agent.policies import STUCK, play_policy

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
