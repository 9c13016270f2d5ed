"""An OpenAI-compatible endpoint plays: a real server on this machine answers like an agent."""

import json

import pytest

from ragen.cli import main
from ragen.tracking.episodes import read_episodes
from tests.engine.test_api_engine import ChatServer, chat, server  # noqa: F401

API = [
    "actor_rollout_ref.rollout.name=api",
    "es_manager.val.env_groups=8",
    "es_manager.val.env_configs.tags=[Bandit]",
    "es_manager.val.env_configs.n_groups=[8]",
]


def test_an_endpoint_is_evaluated_like_a_model(server: ChatServer, tmp_path):  # noqa: F811
    def pull_first_arm(body):
        actions = body["messages"][0]["content"].split("Actions: ")[1]
        return chat(f"<think>first</think><answer>{actions.split(',')[0]}</answer>")

    server.answer = pull_first_arm
    args = ["eval", "some-model", "--config-name", "_1_bandit", "--mode", "sampled", "--out", str(tmp_path)]
    assert main([*args, *API, f"actor_rollout_ref.rollout.api.base_url={server.url}"]) == 0
    metrics = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert metrics["sampled/Bandit/num_actions"] == 1
    assert metrics["sampled/truncation/parse_failure"] == 0
    episodes = list(read_episodes(tmp_path / "episodes" / "sampled_T0.5.jsonl.gz"))
    assert [e.turns[0].thought for e in episodes] == ["first"] * 8
    assert server.bodies[0]["model"] == "some-model"


def test_an_endpoint_that_refuses_the_key_stops_with_a_clear_error(server: ChatServer, tmp_path, capsys):  # noqa: F811
    server.answer = lambda body: (401, {}, b'{"error": {"message": "bad key"}}')
    args = ["eval", "some-model", "--config-name", "_1_bandit", "--out", str(tmp_path)]
    assert main([*args, *API, f"actor_rollout_ref.rollout.api.base_url={server.url}"]) == 1
    assert "OPENAI_API_KEY" in capsys.readouterr().err
    assert json.loads((tmp_path / "status.json").read_text())["state"] == "failed"


@pytest.mark.parametrize("complaint", ["out of memory", "[/bold] [red] [link=x]", "\x1b[2J"])
def test_a_server_that_fails_every_request_is_a_failed_evaluation(server: ChatServer, tmp_path, capsys, complaint):  # noqa: F811
    server.answer = lambda body: (500, {}, json.dumps({"error": {"message": complaint}}).encode())
    args = ["eval", "some-model", "--config-name", "_1_bandit", "--no-reference", "--out", str(tmp_path), *API]
    url = f"actor_rollout_ref.rollout.api.base_url={server.url}"
    assert main([*args, url, "actor_rollout_ref.rollout.api.max_retries=0"]) == 1
    output = capsys.readouterr()
    shown = complaint.replace("\x1b", r"\x1b")
    assert "all 8 episodes were lost to faults, the first as engine_error" in output.err
    assert f"answered 500 ({shown})" in output.err and "\x1b" not in output.out + output.err
    status = json.loads((tmp_path / "status.json").read_text())
    assert status["state"] == "failed" and "answered 500" in status["reason"]
    assert len(server.bodies) == 8  # greedy replies are not asked for any more
    assert main(["show", str(tmp_path), "--status", "engine_error"]) == 0
    assert f"answered 500 ({shown})" in capsys.readouterr().out
