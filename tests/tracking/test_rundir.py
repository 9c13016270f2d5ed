"""Episodes survive the disk: any text, any kill."""

import json

import pytest

from ragen.errors import RagenError
from ragen.tracking.rundir import RunDir, episode_files, read_episodes
from ragen.types import Episode, Status, Turn


def an_episode(text: str = "<think>go</think><answer>Up</answer>") -> Episode:
    turn = Turn(
        user="Turn 1",
        prompt_ids=[1, 2],
        response_ids=[7, 8],
        logprobs=[-0.5, -0.25],
        text=text,
        stop_reason="stop_token",
        thought="go",
        actions=["Up"],
        executed=["Up"],
        reward=-0.1,
        info={"action_is_valid": 1.0},
    )
    return Episode(
        tag="T", env_type="t", group_id=3, member=1, seed=9, system="sys", turns=[turn], status=Status.SOLVED
    )


@pytest.mark.parametrize("text", ["plain", "new\nline and \u2028", "NUL \x00", "lone \ud800 surrogate", "√"])
def test_episodes_are_read_back_as_they_were_written(tmp_path, text):
    run = RunDir(tmp_path)
    path = run.write_episodes("sampled", [an_episode(text), an_episode()])
    assert list(read_episodes(path)) == [an_episode(text), an_episode()]


def test_an_episode_file_holds_openai_messages_and_token_ids(tmp_path):
    path = RunDir(tmp_path).write_episodes("sampled", [an_episode()])
    record = json.loads(path.read_text())
    assert [message["role"] for message in record["messages"]] == ["system", "user", "assistant"]
    assert record["turns"][0]["response_ids"] == [7, 8]
    assert record["turns"][0]["logprobs"] == [-0.5, -0.25]
    assert record["success"] is True


def test_a_line_cut_by_a_kill_is_skipped(tmp_path):
    path = RunDir(tmp_path).write_episodes("sampled", [an_episode(), an_episode()])
    path.write_text(path.read_text()[:-20])
    assert list(read_episodes(path)) == [an_episode()]


def test_a_broken_line_in_the_middle_is_an_error_with_its_number(tmp_path):
    path = RunDir(tmp_path).write_episodes("sampled", [an_episode()])
    path.write_text("{}\n" + path.read_text())
    with pytest.raises(RagenError, match="line 1"):
        list(read_episodes(path))


def test_metrics_are_appended_line_by_line(tmp_path):
    run = RunDir(tmp_path)
    run.log(1, {"rollout/success": 0.5})
    run.log(2, {"rollout/success": 0.75})
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines == [{"step": 1, "rollout/success": 0.5}, {"step": 2, "rollout/success": 0.75}]


def test_no_temporary_file_stays_behind(tmp_path):
    run = RunDir(tmp_path)
    run.write_status("running")
    run.write_status("finished", seconds=1)
    assert [path.name for path in tmp_path.iterdir()] == ["status.json"]
    assert json.loads((tmp_path / "status.json").read_text()) == {"state": "finished", "reason": "", "seconds": 1}


def test_a_folder_without_episodes_says_what_to_give(tmp_path):
    with pytest.raises(RagenError, match="run directory"):
        episode_files(tmp_path)
