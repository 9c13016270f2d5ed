"""The generators of reasoning-gym, played: `make test-adapters`."""

from functools import partial

import pytest

pytest.importorskip("reasoning_gym", reason="needs reasoning-gym; run: make test-adapters")

from ragen.env import check_env, make_env
from ragen.env.checker import HOSTILE
from ragen.env.reasoning_gym.env import SURVEY
from ragen.errors import ConfigError

pytestmark = pytest.mark.adapters
SAMPLE = ["countdown", "pool_matrix", "n_queens", "complex_arithmetic", "list_functions"]


@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_keeps_every_promise(name: str):
    check_env(partial(make_env, "reasoning_gym", {"name": name, "max_steps": 2}), seeds=range(3))


@pytest.mark.parametrize("name", SURVEY.allowed)
def test_every_allowed_generator_is_won_by_its_own_answer_and_bears_any_text(name: str):
    env = make_env("reasoning_gym", {"name": name, "max_steps": 99})
    env.reset(1)
    assert not any(env.step(text).info["success"] for text in HOSTILE)
    if solution := env.solve():
        result = env.step(solution[0])
        assert (result.reward, result.terminated, result.info["success"]) == (1.0, True, 1.0)
    else:
        assert name == "intermediate_integration", "its own answer may be an integral that it could not solve"


def test_the_refused_hold_no_answer_of_their_own():
    import reasoning_gym

    for name in ("boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"):
        dataset = reasoning_gym.create_dataset(name, seed=1, size=1)
        assert dataset.score_answer(answer=dataset[0]["answer"], entry=dataset[0]) == 0


def test_a_wrong_answer_may_be_followed_by_a_right_one_and_pays_nothing():
    env = make_env("reasoning_gym", {"name": "countdown", "max_steps": 2})
    env.reset(3)
    wrong = env.step("1 + 1")
    assert wrong.reward == 0 and "its score is 0.05 of 1" in wrong.observation
    assert env.step(env.solve()[0]).reward == 1


def test_the_last_wrong_answer_pays_its_score():
    env = make_env("reasoning_gym", {"name": "countdown"})
    env.reset(3)
    result = env.step("1 + 1")
    assert (result.reward, result.truncated, result.info["success"]) == (0.05, True, 0.0)


def test_code_in_an_answer_is_not_run(tmp_path):
    file = tmp_path / "run"
    for name in ("countdown", "n_queens", "simple_integration", "spiral_matrix"):
        env = make_env("reasoning_gym", {"name": name})
        result = env.step(f"__import__('pathlib').Path({str(file)!r}).touch()")
        assert result.info["action_is_valid"] == 0 and "refused" in result.observation
    assert not file.exists()


def test_options_reach_the_generator_and_wrong_ones_are_named():
    env = make_env("reasoning_gym", {"name": "countdown", "options": {"min_numbers": 3, "max_numbers": 3}})
    assert len(env.entry["metadata"]["numbers"]) == 3
    with pytest.raises(ConfigError, match=r"reasoning_gym\.options\.nonsense: unknown key"):
        make_env("reasoning_gym", {"name": "countdown", "options": {"nonsense": 1}})


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_survey_is_what_is_found_today():
    from tools.adapters.survey import main

    assert main(["reasoning_gym", "--check"]) == 0
