"""What a step reports, and what an environment offers that says nothing more."""

import pytest

from ragen.env import StepResult
from ragen.env.base import step_info
from ragen.env.boundary import EnvFault, check_step
from ragen.seeding import Rng
from tests.env.text_envs import Echo

INFO = step_info(is_valid=True, is_effective=True, is_success=False)


@pytest.mark.parametrize(
    ("flags", "ends"),
    [
        ({}, (False, False, False)),
        ({"is_done": True}, (True, True, False)),
        ({"terminated": True}, (True, True, False)),
        ({"truncated": True}, (True, False, True)),
        ({"terminated": True, "truncated": True}, (True, True, True)),
    ],
)
def test_one_flag_or_two_tell_the_end(flags, ends):
    result = StepResult(observation="x", reward=0.0, info=INFO, **flags)
    assert (result.is_done, result.terminated, result.truncated) == ends
    checked = check_step(result)
    assert (checked.is_done, checked.terminated, checked.truncated) == ends


def test_a_result_of_another_class_may_know_one_flag_alone():
    class Old:
        observation, reward, is_done, info = "x", 1.0, True, INFO

    assert check_step(Old()).terminated
    Old.is_done = "yes"
    with pytest.raises(EnvFault, match="is_done 'yes': expected True or False"):
        check_step(Old())


def test_a_step_that_does_not_tell_success_is_a_fault():
    with pytest.raises(EnvFault, match=r"an info without 'success', \{'points': 1.0\}: step_info"):
        check_step(StepResult(observation="x", reward=1.0, info={"points": 1.0}, is_done=True))


def test_flags_that_contradict_each_other_are_a_fault():
    class Torn:
        observation, reward, is_done, info, terminated, truncated = "x", 1.0, False, {}, True, False

    with pytest.raises(EnvFault, match="is_done False, terminated True"):
        check_step(Torn())


def test_an_environment_that_says_nothing_more_has_the_usual_prompt_and_no_chance():
    env = Echo()
    said = env.system_prompt(), env.example_answer(), env.notes(), env.sample_text(Rng(0)), env.solve(), env.max_tokens
    assert said == ("", "", "", None, None, None)
