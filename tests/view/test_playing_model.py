"""A model in a process of its own: what is asked of it, and what is said when it is slow, wrong or gone."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from ragen.cli import main
from ragen.errors import ConfigError, ModelUnavailable, RagenError
from ragen.models.resolve import TINY_ROOT
from ragen.view.playing.model import Model, completion_of, playable, request_of, temperature_of
from ragen.view.playing.session import Level, Session
from ragen.view.server import guarded
from tests.view.test_playing_session import post
from tests.view.test_server import start

ECHO = """
import json, sys
print(json.dumps({"is_ready": True}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    print("no answer at all", flush=True)
    print(json.dumps({"id": -1}), flush=True)
    print(json.dumps({"id": request["id"], "text": TEXT, "ids": [5, 6], "logprobs": [0.0, -1.0], "entropies": [],
                      "stop_reason": "stop_string"}), flush=True)
"""


def scripted(code: str) -> Model:
    """A process that runs this in place of a model."""
    return Model("a model", ("-c", code))


def saying(text: str) -> Model:
    return scripted(ECHO.replace("TEXT", repr(text)))


@pytest.fixture
def models():
    """Collects models and ends them."""
    found: list[Model] = []
    yield found
    for model in found:
        model.close()


def playing(model: Model, tmp_path: Path) -> TestClient:
    return TestClient(guarded([tmp_path], model=model), base_url="http://127.0.0.1", raise_server_exceptions=False)


def test_replies_are_played_and_their_tokens_carried(models, tmp_path):
    models.append(model := saying("<think>up</think><answer>Up</answer>"))
    client = playing(model, tmp_path)
    game = post(client, "start", tag="SimpleSokoban", seed=7).json()
    game = post(client, "model", session=game["session"], turn=0, temperature=0).json()
    assert game["turns"][0]["executed"] == ["Up"]
    assert client.get("/api/play").json()["model"] == {"name": "a model", "state": "ready", "reason": ""}
    session = Session(Level(run=None, tag="FrozenLake", seed=7))
    session.say("<think></think><answer>Up</answer>")
    session.answer(completion_of(model.ask(request_of(session, 0.0))))
    replies = [message for message in request_of(session, 0.0)["messages"] if message["role"] == "assistant"]
    assert [reply["ids"] for reply in replies] == [[], [5, 6]]  # a person's reply is encoded, the model's is not


def test_a_model_that_has_ended_says_why(models, tmp_path):
    models.append(model := scripted("import sys; sys.exit('out of memory \\x1b[31m')"))
    client = playing(model, tmp_path)
    game = post(client, "start", tag="Bandit", seed=7).json()
    answer = post(client, "model", session=game["session"], turn=0, temperature=0)
    assert answer.status_code == 400
    assert "has ended (exit status 1). It said: out of memory" in answer.json()["error"]
    assert "\x1b" not in answer.json()["error"]
    assert client.get("/api/play").json()["model"]["state"] == "ended"


def test_a_model_that_takes_too_long_is_left_alone_and_its_late_answer_dropped(models):
    late = ECHO.replace("TEXT", "str(request['n'])").replace("(line)\n", "(line)\n    time.sleep(request['s'])\n")
    models.append(model := scripted("import time\n" + late))
    with pytest.raises(RagenError, match=r"not answered within 0\.1 s"):
        model.ask({"n": 1, "s": 0.6}, limit_s=0.1)
    assert model.ask({"n": 2, "s": 0}, limit_s=60)["text"] == "2"


def test_errors_of_the_model_are_sentences(models):
    refusal = 'print(json.dumps({"id": json.loads(line)["id"], "error": "No."}), flush=True)'
    models.append(model := scripted(f"import json, sys\nfor line in sys.stdin: {refusal}"))
    with pytest.raises(RagenError, match=r"^The model cannot answer: No\.$"):
        model.ask({})


def test_a_process_that_does_not_end_is_killed(monkeypatch):
    monkeypatch.setattr("ragen.view.playing.model.END_S", 0.2)
    model = scripted("import time\nwhile True: time.sleep(1)")
    model.close()
    assert model.process.returncode == -signal.SIGKILL


def test_a_page_without_a_model_says_how_to_get_one(client):
    game = post(client, "start", tag="Bandit", seed=7).json()
    answer = post(client, "model", session=game["session"], turn=0, temperature=0)
    assert "--play CHECKPOINT" in answer.json()["error"]
    assert client.get("/api/play").json()["model"] is None


@pytest.mark.parametrize("value", [-1, 11, "hot", None, True, float("nan")])
def test_a_temperature_is_a_number(value):
    with pytest.raises(RagenError, match="temperature"):
        temperature_of(value)


def test_a_run_stands_for_its_newest_actor(tmp_path):
    for step in (2, 10):
        actor = tmp_path / f"global_step_{step}" / "actor"
        actor.mkdir(parents=True)
        for file in (TINY_ROOT / "bandit").iterdir():
            (actor / file.name).symlink_to(file)
    assert playable(str(tmp_path)) == str(tmp_path / "global_step_10" / "actor")
    assert playable(str(tmp_path / "global_step_2")) == str(tmp_path / "global_step_2" / "actor")
    assert (playable("tiny"), playable("tiny/bandit")) == ("tiny", "tiny/bandit")


def test_a_model_that_does_not_exist_is_refused_before_anything_is_served(tmp_path, capsys):
    with pytest.raises(ModelUnavailable):
        playable("nosuchmodel")
    with pytest.raises(ConfigError):
        playable(str(tmp_path))
    assert main(["view", str(tmp_path), "--play", "nosuchmodel"]) == 1
    assert "nosuchmodel" in capsys.readouterr().err


def child_of(process: subprocess.Popen[str]) -> int:
    [child] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(child)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_model_ends_with_the_server_however_that_ends(tmp_path, number):
    server, _ = start(str(tmp_path), "--play", "tiny")
    model = child_of(server)
    assert is_running(model)
    assert "libtorch" not in Path(f"/proc/{server.pid}/maps").read_text()
    os.kill(server.pid, number)
    server.communicate(timeout=60)
    until = time.monotonic() + 60
    while is_running(model) and time.monotonic() < until:
        time.sleep(0.05)
    assert not is_running(model)
