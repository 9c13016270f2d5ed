"""`ragen serve`: an environment of ours behind OpenEnv's protocol."""

import errno
import json
import re
import socket
import subprocess
import sys
import urllib.request

import pytest

pytest.importorskip("websockets", reason="needs the extra openenv")
pytest.importorskip("starlette", reason="needs the extra openenv")

from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from ragen.cli import main
from ragen.cli.serve import option, served
from ragen.env.openenv import protocol, server
from ragen.env.openenv.server import Served, Session, build_app
from ragen.errors import ConfigError
from tests.env.openenv_servers import running
from tests.test_sockets import refusing

LAKE = Served(name="lake", env_type="frozen_lake", env_config={"is_slippery": False})
COUNTDOWN = Served(name="countdown", env_type="countdown", env_config={})


def test_a_session_plays_named_actions():
    session = Session(LAKE)
    start = session.reset({"seed": 3})
    assert start["reward"] is None and start["done"] is False
    assert start["observation"]["metadata"]["actions"] == ["Left", "Down", "Right", "Up"]
    assert "An answer is one of: Left, Down, Right, Up." in start["metadata"]["notes"]
    assert session.step({"text": "fly"})["metadata"]["action_is_valid"] == 0.0
    assert session.step({"text": " DOWN "})["metadata"]["action_is_valid"] == 1.0
    assert session.state() == {"episode_id": "1", "step_count": 2}


def test_without_a_seed_each_episode_has_the_next_level():
    session, other = Session(COUNTDOWN), Session(COUNTDOWN)
    first, second = session.reset({}), session.reset({})
    assert first["observation"]["text"] == other.reset({"seed": 0})["observation"]["text"]
    assert second["observation"]["text"] == other.reset({"seed": 1})["observation"]["text"]


@pytest.mark.parametrize(
    ("kind", "data", "reason"),
    [
        ("reset", {"seed": -1}, "seed must be a whole number"),
        ("reset", {"seed": True}, "seed must be a whole number"),
        ("reset", {"seed": 2**70}, "seed must be a whole number"),
        ("step", {"text": 3}, "an action is"),
        ("step", {"message": "x"}, "an action is"),
        ("step", {"text": "1"}, "send a reset"),
    ],
)
def test_a_wrong_question_is_answered_with_the_reason(kind: str, data: dict, reason: str):
    with pytest.raises(protocol.NotAMessage, match=reason):
        getattr(Session(COUNTDOWN), kind)(data)


@pytest.fixture(scope="module")
def address():
    with running(build_app(COUNTDOWN, max_sessions=2)) as url:
        yield url.removeprefix("http://")


def ask(socket, text: str) -> tuple[str, dict]:
    socket.send(text)
    return protocol.read(socket.recv(timeout=30))


def test_wrong_messages_do_not_end_a_session(address: str):
    with connect(f"ws://{address}/ws", proxy=None) as socket:
        answers = [ask(socket, text) for text in ("{", '{"type": "jump"}', '{"type": "step", "data": {"text": "1"}}')]
        assert [data["code"] for _, data in answers] == ["INVALID_JSON", "UNKNOWN_TYPE", "VALIDATION_ERROR"]
        assert ask(socket, '{"type": "reset", "data": {"seed": 1}}')[0] == "observation"
        assert ask(socket, '{"type": "state"}') == ("state", {"episode_id": "1", "step_count": 0})


def test_one_session_too_many_is_refused(address: str):
    with connect(f"ws://{address}/ws", proxy=None) as first, connect(f"ws://{address}/ws", proxy=None) as second:
        assert ask(first, '{"type": "state"}')[0] == ask(second, '{"type": "state"}')[0] == "state"
        with connect(f"ws://{address}/ws", proxy=None) as third:
            kind, data = protocol.read(third.recv(timeout=30))
    assert (kind, data["code"], data["message"]) == ("error", "CAPACITY_REACHED", "All 2 sessions are taken.")


def test_an_application_below_a_prefix_answers_the_same():
    from starlette.applications import Starlette
    from starlette.routing import Mount

    with running(Starlette(routes=[Mount("/countdown", build_app(COUNTDOWN))])) as url:
        for path in ("health", "schema", "metadata"):
            with urllib.request.urlopen(f"{url}/countdown/{path}", timeout=30) as response:
                assert json.load(response)
        with connect(f"{url.replace('http', 'ws', 1)}/countdown/ws", proxy=None) as socket:
            assert ask(socket, '{"type": "state"}')[0] == "state"


def test_pages_of_a_browser_do_not_get_in(address: str):
    with pytest.raises(InvalidStatus):
        connect(f"ws://{address}/ws", proxy=None, origin="http://evil.example")  # type: ignore[arg-type]
    request = urllib.request.Request(f"http://{address}/health", headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError, match=r"400"):
        urllib.request.urlopen(request)


def test_a_step_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch, address: str):
    import threading

    release = threading.Event()
    monkeypatch.setattr(server, "STEP_S", 0.2)
    monkeypatch.setattr("ragen.env.countdown.env.CountdownEnv.step", lambda self, text: release.wait(30))
    with connect(f"ws://{address}/ws", proxy=None) as socket:
        ask(socket, '{"type": "reset", "data": {}}')
        kind, data = ask(socket, '{"type": "step", "data": {"text": "1"}}')
        release.set()
    assert (kind, data["message"]) == ("error", "step took more than 0.2 s.")


def test_a_port_in_use_is_said(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "countdown", "--port", str(port)]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"error: Port {port} is in use, perhaps by another ragen serve.")
    assert f"--port {port + 1};" in said


def test_a_port_of_the_system_is_said(capsys, monkeypatch):
    monkeypatch.setattr(socket, "socket", refusing(errno.EACCES))
    assert main(["serve", "countdown", "--port", "80"]) == 1
    said = "error: Port 80 is not for everybody. Give one above 1023: --port 8000\n"
    assert capsys.readouterr().err == said


def test_what_is_served_is_a_tag_or_a_type():
    assert served("SimpleSokoban", ["num_boxes=2"], "base").env_config["num_boxes"] == 2
    assert served("countdown", [], "base") == COUNTDOWN
    assert option("symbols={wall: W}") == ("symbols", {"wall": "W"})
    with pytest.raises(ConfigError, match=r"ENV 'SimpleSokobn' is unknown. Did you mean SimpleSokoban\?"):
        served("SimpleSokobn", [], "base")
    with pytest.raises(
        ConfigError, match=r"One of your own is written module:name, and tags of your own .* --config-dir"
    ):
        served("Mine", [])
    with pytest.raises(ConfigError, match=r"Write key=value"):
        served("countdown", ["hard"], "base")


def test_an_environment_of_ones_own_is_served_by_its_path_and_by_its_tag(tmp_path):
    path = "tests.env.text_envs:Echo"
    assert served(path, ["word=hello"]) == Served(name=path, env_type=path, env_config={"word": "hello"})
    assert Session(served(path, ["word=hello"])).env.config.word == "hello"
    (tmp_path / "mine.yaml").write_text(
        "defaults: [base, _self_]\ncustom_envs: {Mine: {env_type: '"
        + path
        + "', max_actions_per_traj: 2, env_instruction: Say it., max_tokens: 40, env_config: {word: thanks}}}\n"
    )
    assert served("Mine", [], "mine", str(tmp_path)).env_config == {"word": "thanks"}


def test_a_wrong_option_is_said_before_anything_is_served():
    command = [sys.executable, "-m", "ragen.cli", "serve", "countdown", "num_number=3", "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "Did you mean countdown.num_numbers" in done.stderr


def test_the_command_prints_its_address_and_ends_with_ctrl_c():
    import signal

    command = [sys.executable, "-m", "ragen.cli", "serve", "countdown", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        line = child.stdout.readline()
        url = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert url, line
        with urllib.request.urlopen(f"{url[0]}/health") as health:
            assert health.read() == b'{"status":"healthy"}'
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=60) in (0, 130)
    assert line.startswith("countdown by OpenEnv's protocol: http"), "a type is named once"
