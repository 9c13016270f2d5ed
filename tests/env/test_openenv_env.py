"""An OpenEnv server as an environment; the server is `ragen serve`, and some that misbehave."""

import socket
import sys
from functools import partial

import pytest

pytest.importorskip("websockets", reason="needs the extra openenv")
pytest.importorskip("starlette", reason="needs the extra openenv")

from starlette.applications import Starlette
from starlette.routing import WebSocketRoute

from ragen.env import check_env, make_env
from ragen.env.openenv.env import metadata_of, numbers_of
from ragen.env.openenv.server import Served, build_app
from ragen.errors import ConfigError, MissingExtra
from tests.env.openenv_servers import running


@pytest.mark.parametrize(
    ("env_type", "env_config"), [("countdown", {"num_numbers": 3}), ("frozen_lake", {"is_slippery": False})]
)
def test_an_environment_that_is_served_plays_like_the_one_at_home(env_type: str, env_config: dict):
    home = make_env(env_type, env_config)
    with running(build_app(Served(name="it", env_type=env_type, env_config=env_config))) as url:
        away = make_env("openenv", {"url": url})
        for seed in range(3):
            assert away.reset(seed) == home.reset(seed)
            assert away.level_content() == home.level_content()
            names = getattr(home, "actions", {})
            for action in home.solve() or []:
                ours, theirs = home.step(action), away.step(names.get(action, action))
                assert theirs == ours
            assert ours.info["success"] == 1.0
        away.close()
        check_env(partial(make_env, "openenv", {"url": url}), seeds=range(2))


def misbehaving(*answers: str | None) -> Starlette:
    """A server that gives these answers to any messages; None leaves without one."""

    async def play(websocket):
        await websocket.accept()
        for answer in answers:
            await websocket.receive_text()
            if answer is None:
                break
            await websocket.send_text(answer)
        else:  # it listens and says no more
            while (await websocket.receive())["type"] != "websocket.disconnect":
                pass
            return
        await websocket.close()

    return Starlette(routes=[WebSocketRoute("/ws", play)])


START = '{"type": "observation", "data": {"observation": {"message": "hello"}, "done": false}}'


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (
            '{"type": "error", "data": {"message": "no \\u001b[2J", "code": "X"}}',
            RuntimeError,
            r"refused step: no \\x1b",
        ),
        ('{"type": "state", "data": {}}', ValueError, "expected an observation"),
        ("nonsense", ValueError, "not JSON"),
        (None, Exception, "1000"),
    ],
)
def test_a_server_that_misbehaves_is_an_error_of_its_episode(answer, error, message):
    with running(misbehaving(START, answer)) as url:
        env = make_env("openenv", {"url": url})
        assert env.render() == "hello"
        with pytest.raises(error, match=message):
            env.step("x")


def test_a_server_that_hangs_is_an_error_of_its_episode():
    with running(misbehaving(START)) as url:
        env = make_env("openenv", {"url": url})
        object.__setattr__(env.config, "timeout_s", 0.2)  # the start may take its time
        with pytest.raises(TimeoutError, match=r"did not answer within 0.2 s \(openenv.timeout_s\)"):
            env.step("x")


def test_fields_are_chosen_by_name():
    answer = '{"type": "observation", "data": {"observation": {"message": "m", "board": [1, 2]}, "done": false}}'
    with running(misbehaving(answer)) as url:
        assert make_env("openenv", {"url": url}).render() == "m"
        assert make_env("openenv", {"url": url, "observation_field": "board"}).render() == "[1, 2]"
        with pytest.raises(ValueError, match=r"'bord' is not in the observation, which has: message, board"):
            make_env("openenv", {"url": url, "observation_field": "bord"})


def test_where_nothing_listens_the_command_is_given():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConfigError, match=r"no OpenEnv server answers there.*ragen serve SimpleSokoban"):
        make_env("openenv", {"url": f"http://127.0.0.1:{port}"})


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "file:///etc/passwd", "http://"])
def test_what_is_no_address_is_refused(url: str):
    with pytest.raises(ConfigError, match=r"openenv.url is .* Write http://HOST:PORT"):
        make_env("openenv", {"url": url})


def test_without_the_package_the_install_command_is_given(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "websockets.sync.client", None)
    with pytest.raises(MissingExtra, match=r"pip install -e '\.\[openenv\]'"):
        make_env("openenv")


def test_metadata_may_be_anything():
    assert metadata_of({"observation": {"metadata": {"a": 1}}}) == {"a": 1}
    assert metadata_of({"observation": 3, "metadata": [1]}) == {}
    assert numbers_of({"a": 1, "b": True, "c": "x", "d": None}) == {"a": 1.0, "b": 1.0}
