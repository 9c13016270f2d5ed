"""Episodes through the API."""

import json

import pytest

from ragen.tracking.episodes import episode_to_json
from ragen.tracking.rundir import RunDir
from ragen.types import Status
from ragen.view.reading import episodes as module
from tests.view.runs import episode, turn, write_run

PATH = "/api/runs/0%2Fa"


@pytest.fixture
def run(tmp_path) -> RunDir:
    """Two steps of two groups of two; in each group the second member fails."""
    found = RunDir(write_run(tmp_path / "runs" / "a"))
    for step in (1, 10):
        members = [episode(group, member, reward=1.0 - member) for group in (0, 1) for member in (0, 1)]
        found.write_episodes(f"train_step_{step}", members)
    found.write_episodes("val_step_1", [episode(0, tag="Other")])
    return found


def test_the_list_has_all_in_the_order_of_steps(client, run):
    found = client.get(f"{PATH}/episodes").json()
    assert [file["name"] for file in found["files"]] == ["train_step_1", "train_step_10", "val_step_1"]
    assert (found["total"], found["indexing"], found["tags"]) == (9, {"done": 3, "of": 3}, ["FrozenLake", "Other"])
    assert found["rows"][0] == {
        "file": "train_step_1",
        "index": 0,
        "step": 1,
        "rollout": "train",
        "tag": "FrozenLake",
        "group": 0,
        "member": 0,
        "seed": 100,
        "status": "solved",
        "success": True,
        "reward": 1.0,
        "penalty": 0.0,
        "turns": 1,
        "actions": 1,
        "tokens": 2,
    }


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ({"file": "train_step_10"}, 4),
        ({"tag": "Other"}, 1),
        ({"status": "failed"}, 4),
        ({"rollout": "val"}, 1),
        ({"min": "0.5"}, 5),
        ({"max": "0.5"}, 4),
        ({"file": "train_step_1", "group": "1", "status": "solved"}, 1),
        ({"tag": "' or 1=1 --"}, 0),
        ({"page": "1"}, 9),
        ({"text": "GO</THINK>"}, 9),
        ({"text": "nowhere"}, 0),
    ],
)
def test_filters(client, run, query, count):
    assert client.get(f"{PATH}/episodes", params=query).json()["total"] == count


def test_sorting_and_pages(client, run, monkeypatch):
    monkeypatch.setattr(module, "PAGE_SIZE", 2)
    rows = client.get(f"{PATH}/episodes", params={"sort": "-step", "page": "1"}).json()["rows"]
    assert [(row["file"], row["index"]) for row in rows] == [("train_step_10", 2), ("train_step_10", 3)]
    first = client.get(f"{PATH}/episodes", params={"sort": "reward"}).json()["rows"][0]
    assert first["reward"] == 0.0


@pytest.mark.parametrize("query", [{"sort": "reward; drop table files"}, {"min": "x"}])
def test_wrong_queries_are_sentences(client, run, query):
    answer = client.get(f"{PATH}/episodes", params=query)
    assert (answer.status_code, set(answer.json())) == (400, {"error"})


def test_a_search_that_takes_long_says_so(client, run, monkeypatch):
    monkeypatch.setattr(module, "SEARCH_S", -1.0)
    assert client.get(f"{PATH}/episodes", params={"text": "go"}).json()["is_complete"] is False


def test_a_group_has_its_members_and_what_they_earned(client, run):
    found = client.get(f"{PATH}/group", params={"file": "train_step_10", "group": "1"}).json()
    assert [(member["group"], member["member"]) for member in found["members"]] == [(1, 0), (1, 1)]
    assert found["rewards"] == [1.0, 0.0]


def test_an_episode_turn_by_turn(client, run):
    ended = episode(status=Status.FAILED, turns=[turn(penalty=-0.1, info={"success": 0.0})])
    run.write_episodes("train_step_2", [ended])
    found = client.get(f"{PATH}/episode", params={"file": "train_step_2", "index": "0"}).json()
    assert (found["status"], found["system"], found["seed"]) == ("failed", "You play.", 100)
    first = found["turns"][0]
    assert first["frame"] == {"kind": "frozen_lake", "rows": [["player", "frozen"], ["frozen", "goal"]]}
    assert found["final_frame"]["rows"][0][0] == "player_on_goal"
    assert (first["thought"], first["executed"], first["penalty"], first["info"]) == (
        "go",
        ["Up"],
        -0.1,
        {"success": 0},
    )
    assert [(token["id"], token["logprob"], token["entropy"]) for token in first["tokens"]] == [
        (4, -0.5, 0.25),
        (5, -1.5, 0.75),
    ]
    assert found["tokens_missing"] == ""
    assert "prompt_tokens" not in first


def tokens_of(client, run, *episodes, name="train_step_2", **query) -> dict:
    run.write_episodes(name, episodes)
    return client.get(f"{PATH}/episode", params={"file": name, "index": "0"} | query).json()


@pytest.mark.parametrize(
    ("written", "of_tokens", "of_turn", "trained"),
    [
        ([0.5], [0.5, 0.5], [0.5, 0.5], "yes"),
        ([0.5, -1.0], [0.5, -1.0], [-1.0, 0.5], "yes"),
        ([], [None, None], None, "no"),
        ([1.0, 2.0, 3.0], [None, None], [1.0, 3.0], "yes"),  # of another length: of something else
    ],
)
def test_tokens_have_the_advantages_of_their_reply(client, run, written, of_tokens, of_turn, trained):
    found = tokens_of(client, run, episode(turns=[turn(advantages=written)]))
    assert [token["advantage"] for token in found["turns"][0]["tokens"]] == of_tokens
    assert (found["turns"][0]["advantage"], found["trained"]) == (of_turn, trained)


def test_only_training_rollouts_of_this_version_know_whether_they_were_trained_on(client, run):
    assert tokens_of(client, run, episode(turns=[turn()]), name="val_step_2")["trained"] == "never"
    record = episode_to_json(episode())
    del record["turns"][0]["advantages"]
    (run.path / "episodes" / "train_step_3.jsonl").write_text(json.dumps(record) + "\n")
    old = client.get(f"{PATH}/episode", params={"file": "train_step_3", "index": "0"}).json()
    assert (old["trained"], old["turns"][0]["advantage"]) == ("unknown", None)


def test_the_mask_is_one_on_replies_and_zero_on_prompts(client, run):
    [first] = tokens_of(client, run, episode(turns=[turn()]), prompts="1")["turns"]
    assert [(token["id"], token["mask"]) for token in first["prompt_tokens"] + first["tokens"]] == [
        *((1, 0), (2, 0), (3, 0)),
        *((4, 1), (5, 1)),
    ]


def test_hostile_texts_stay_texts(client, run):
    hostile = "<script>alert(1)</script>\0\u202e\ud800" + "x" * 1_000_000
    run.write_episodes("train_step_2", [episode(turns=[turn(hostile, observation=hostile)], error=hostile)])
    answer = client.get(f"{PATH}/episode", params={"file": "train_step_2"})
    assert answer.headers["content-type"] == "application/json"
    found = answer.json()
    assert found["turns"][0]["text"] == found["error"] == hostile
    assert found["turns"][0]["frame"] == {"kind": "text", "text": hostile}
    assert client.get(f"{PATH}/episodes", params={"text": "\u202e"}).json()["total"] == 1


def test_a_line_that_is_no_episode_is_a_sentence(client, run):
    record = episode_to_json(episode())
    lines = ["{}", json.dumps(record | {"turns": 3}), json.dumps(record | {"messages": "x"}), "[" * 10_000]
    (run.path / "episodes" / "train_step_2.jsonl").write_text("\n".join(lines) + "\n")
    for number in range(len(lines)):
        answer = client.get(f"{PATH}/episode", params={"file": "train_step_2", "index": str(number)})
        assert (answer.status_code, set(answer.json())) == (400, {"error"})


@pytest.mark.parametrize("query", [{"file": "../../secret"}, {"file": "train_step_1", "index": "99"}, {}])
def test_what_is_not_there_is_404(client, run, query):
    assert client.get(f"{PATH}/episode", params=query).status_code == 404


def test_a_run_without_episodes_has_none(client, tmp_path):
    write_run(tmp_path / "runs" / "a")
    found = client.get(f"{PATH}/episodes").json()
    assert (found["files"], found["total"], found["rows"]) == ([], 0, [])
