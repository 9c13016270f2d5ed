"""Reward and metric functions are tried on finished episodes before a run begins."""

import pytest

from ragen.errors import ConfigError
from ragen.trainer.starting.own_functions import check_own_functions, finished_episodes
from ragen.types import Status
from tests.trainer.runs import BANDIT, LAKE, refused, small_config

OWN = "tests.trainer.starting.test_own_functions"


def nothing(episode):
    return None


def text(episode):
    return "1"


def raising(episode):
    return episode.rewards


def not_finite(episode):
    return float("nan")


def of_success(episode):
    """Reads what turns and infos hold, those of some environment, too."""
    last = episode.turns[-1]
    return last.info["success"] + last.info["boxes_on_target"] + sum(last.logprobs) / len(last.response_ids)


def changing(episode):
    episode.turns.clear()
    return 0.0


def no_dictionary(episodes):
    return None


def spaced(episodes):
    return {"two words": 1.0}


def share(episodes):
    return {"solved": sum(episode.is_success for episode in episodes) / len(episodes)}


def test_the_episodes_begin_as_those_of_training_do(tmp_path):
    episodes = finished_episodes(small_config(tmp_path, env=LAKE))
    assert [episode.status for episode in episodes] == [Status.OUT_OF_TURNS, Status.SOLVED, Status.FAILED]
    assert {episode.tag for episode in episodes} == {"FrozenLake"} and len({e.level for e in episodes}) == 1
    for episode in episodes:
        assert [len(turn.response_ids) == len(turn.logprobs) > 0 for turn in episode.turns] == [True, True]
        assert "P" in episode.turns[0].observation and episode.system
    silent, solved, _ = episodes
    assert all(turn.executed[0] in ("Left", "Down", "Right", "Up") for turn in solved.turns)
    assert solved.turns[0].text == f"<think>hello</think><answer>{solved.turns[0].actions[0]}</answer>"
    assert [turn.is_invalid for turn in silent.turns] == [True, True] and solved.reward == 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("es_manager.reward_function={}:nothing", "ended as out_of_turns, it returned None: expected a number."),
        ("es_manager.reward_function={}:text", "it returned '1': expected a number."),
        ("es_manager.reward_function={}:not_finite", "it returned nan: expected a finite number."),
        ("es_manager.reward_function={}:raising", "it failed with AttributeError: 'Episode' object has no attribute"),
        ("trainer.metric_function={}:no_dictionary", "it returned None; expected a dictionary of names and numbers"),
        ("trainer.metric_function={}:spaced", "'two words': 1.0 is no metric"),
    ],
)
def test_a_function_that_gives_something_else_is_refused_before_the_run(tmp_path, change, message):
    change = change.format(OWN)
    found = refused(tmp_path, change, env=BANDIT)
    assert found.startswith(f"{change}: tried on") and message in found
    assert not (tmp_path / "config.yaml").exists()


def test_a_good_function_passes_and_cannot_spoil_the_episodes_of_another(tmp_path):
    for name in ("of_success", "changing"):
        own = (f"es_manager.reward_function={OWN}:{name}", f"trainer.metric_function={OWN}:share")
        check_own_functions(small_config(tmp_path, *own))


def test_a_function_of_the_wrong_form_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot be called with one argument"):
        check_own_functions(small_config(tmp_path, "es_manager.reward_function=tests.api.own:no_reward"))
