"""Why nothing can be learned from a rollout, on episodes made by hand."""

import pytest

from ragen.tracking.rundir import RunDir
from ragen.trainer.endings.trouble import find_trouble, read_signs, signs_of_step
from ragen.types import Episode, Status, Turn


def episode(
    group: int = 0,
    member: int = 0,
    *,
    reward: float = 0.0,
    text: str = "<answer>Up</answer>",
    is_parsed: bool = True,
    executed: list[str] | None = None,
    status: Status = Status.FAILED,
    error: str = "",
) -> Episode:
    turn = Turn(
        user="",
        prompt_ids=[1],
        response_ids=[2],
        logprobs=[0.0],
        text=text,
        stop_reason="length" if not is_parsed else "stop_token",
        is_parsed=is_parsed,
        executed=(["Up"] if is_parsed else []) if executed is None else executed,
        reward=reward,
    )
    turns = [] if status.is_fault else [turn]
    return Episode(
        tag="T", env_type="t", group_id=group, member=member, seed=group, turns=turns, status=status, error=error
    )


@pytest.mark.parametrize("status", [status for status in Status if status.is_fault])
def test_every_kind_of_fault_shows_its_error(status):
    trouble = find_trouble([episode(status=status, error="ValueError: boom\n  in line 3\x1b[2J")] * 3)
    assert trouble is not None and trouble.is_fault and trouble.kind == status
    assert "all 3 episodes" in trouble.sentence
    assert trouble.example == "ValueError: boom\n  in line 3\\x1b[2J"
    assert str(trouble).endswith("all 3 episodes: ValueError: boom")


def test_one_episode_that_was_played_is_enough():
    lost = episode(status=Status.ENV_ERROR, error="boom")
    assert find_trouble([lost, lost, episode(1, 0), episode(1, 1, reward=1.0)]) is None


def test_episodes_without_an_action_do_not_speak_for_an_environment_that_always_raises():
    lost = [episode(0, member, status=Status.ENV_ERROR, error="ValueError: boom") for member in range(7)]
    trouble = find_trouble([*lost, episode(0, 7, text="?", is_parsed=False)])
    assert trouble is not None and trouble.kind == "env_error" and trouble.example == "ValueError: boom"
    assert trouble.sentence == "the environment raised in 7 episodes (and 1 had no readable action)"


def test_replies_of_which_none_becomes_an_action_lack_the_form():
    formless = [episode(0, member, text="hm", is_parsed=False) for member in range(8)]
    unknown = [episode(1, member, executed=[]) for member in range(8)]  # the form, around something unknown
    trouble = find_trouble(formless + unknown)
    assert trouble is not None and trouble.kind == "reply_format" and trouble.example == "hm"
    assert trouble.sentence.startswith("none of 16 replies names an action, and 8 of 16 replies do not have the form")
    acted = find_trouble([*formless, *unknown, episode(2, 0), episode(2, 1, reward=1.0)])
    assert acted is None


def test_replies_without_the_form_show_one_of_them():
    episodes = [episode(group, text=f"reply {group}", is_parsed=False) for group in range(19)] + [episode(19)]
    trouble = find_trouble(episodes)  # 19 of 20 are 95 %
    assert trouble is not None and trouble.kind == "reply_format"
    assert trouble.sentence.startswith("19 of 20 replies") and trouble.example == "reply 0"
    assert find_trouble([*episodes, episode(20, 0), episode(20, 1, reward=1.0)]) is None


def test_equal_rewards_are_shown():
    episodes = [episode(group, member, reward=group) for group in range(5) for member in range(9)]
    trouble = find_trouble(episodes)
    assert trouble is not None and trouble.kind == "equal_rewards"
    assert trouble.example.startswith("group 0: 0 0 0 0 0 0 0 0 ...; group 1: 1 1")
    assert trouble.example.endswith("group 3: 3 3 3 3 3 3 3 3 ...; ...")
    assert find_trouble([*episodes, episode(9, 0, reward=1.0), episode(9, 1)]) is None


def test_a_solved_environment_is_no_failure():
    trouble = find_trouble([episode(0, member, reward=1.0, status=Status.SOLVED) for member in range(4)])
    assert trouble is not None and trouble.kind == "all_solved"


def test_groups_of_one_have_nothing_to_compare():
    assert find_trouble([episode(group) for group in range(4)]) is None


def test_the_signs_of_a_step_are_found_again_on_the_disk(tmp_path):
    episodes = [episode(0, 0), episode(0, 1, reward=1.0)]
    RunDir(tmp_path).write_episodes("train_step_3", episodes)
    assert signs_of_step(tmp_path, 3) == {"train": read_signs(episodes)}
    assert read_signs(episodes).rewards == "group 0: 0 1"
    assert signs_of_step(tmp_path, 4) == {}
