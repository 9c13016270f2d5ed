"""Which groups each filter keeps."""

import pytest

from ragen.tracking.rundir import RunDir
from ragen.types import Status
from tests.view.runs import episode, turn, write_run

PATH = "/api/runs/0%2Fa/filter"
FILTER = """
actor_rollout_ref:
  rollout: {rollout_filter_strategy: top_k, rollout_filter_value: 0.5, rollout_filter_include_zero: false}
"""


@pytest.fixture
def run(tmp_path) -> RunDir:
    """Group 0 varies most, group 1 a little, group 2 not at all; group 3 has lost a member."""
    found = RunDir(write_run(tmp_path / "runs" / "a"))
    with (found.path / "config.yaml").open("a") as file:
        file.write(FILTER)
    rewards = {0: (0.0, 4.0), 1: (0.0, 1.0), 2: (1.0, 1.0)}
    members = [episode(g, m, reward=reward) for g, pair in rewards.items() for m, reward in enumerate(pair)]
    lost = episode(3, 1, status=Status.ENV_ERROR)
    for step in (2, 11):
        found.write_episodes(f"train_step_{step}", [*members, episode(3, 0), lost])
    found.write_episodes("val_step_20", [episode()])
    return found


def test_the_groups_and_the_choice_of_the_run(client, run):
    found = client.get(PATH).json()
    assert (found["step"], found["steps"], found["num_incomplete"]) == (11, [2, 11], 1)
    assert [(group["group"], round(group["reward_std"], 3)) for group in found["groups"]] == [
        (0, 2.828),
        (1, 0.707),
        (2, 0.0),
    ]
    assert found["groups"][0]["rewards"] == [0.0, 4.0]
    own = found["filters"][0]
    assert (own["name"], own["is_own"], own["kept"]) == ("top_k 0.5, zeros out", True, [0])
    others = {each["name"]: each["kept"] for each in found["filters"][1:]}
    assert others["top_p 1, zeros in"] == [0, 1, 2]
    assert others["top_p 1, zeros out"] == [0, 1]


def test_another_step_and_one_that_is_not_there(client, run):
    assert client.get(PATH, params={"step": "2"}).json()["file"] == "train_step_2"
    answer = client.get(PATH, params={"step": "3"})
    assert (answer.status_code, answer.json()["error"]) == (
        404,
        "Step 3 has no episodes of training. There are 2 to 11.",
    )


def test_without_entropies_their_filters_are_left_out(client, run):
    config = (run.path / "config.yaml").read_text().replace("include_zero: false", "metric: entropy")
    (run.path / "config.yaml").write_text(config)
    assert client.get(PATH).json()["filters"][0]["name"] == "top_k 0.5 of entropy, zeros in"
    run.write_episodes("train_step_12", [episode(0, m, turns=[turn(entropies=[])]) for m in (0, 1)])
    assert not any(each["is_own"] for each in client.get(PATH).json()["filters"])


@pytest.mark.parametrize(
    "config", ["", "actor_rollout_ref: 3\n", FILTER.replace("top_k", "gone"), FILTER.replace("top_k", "builtins:print")]
)
def test_a_run_whose_filter_is_not_known_shows_the_others(client, run, config):
    (run.path / "config.yaml").write_text(config)
    found = client.get(PATH).json()["filters"]
    assert len(found) > 10
    assert not any(each["is_own"] for each in found)


def test_a_run_without_training_says_so(client, tmp_path):
    write_run(tmp_path / "runs" / "a")
    assert "no filter can be replayed" in client.get(PATH).json()["error"]
