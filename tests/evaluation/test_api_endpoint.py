"""An OpenAI-compatible endpoint plays: a real server on this machine answers like an agent."""

import json

from ragen.cli import main
from ragen.tracking.episodes import read_episodes
from tests.engine.test_api import ChatServer, chat, server  # noqa: F401

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
