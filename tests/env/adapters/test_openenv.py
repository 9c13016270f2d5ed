"""Our server with the released client, our client with the released server: `make test-adapters`."""

import pytest

pytest.importorskip("openenv", reason="needs openenv; run: make test-adapters")

from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app
from openenv.core.generic_client import GenericEnvClient

from ragen.env import make_env
from ragen.env.openenv.server import Served, build_app
from tests.env.openenv_servers import running

pytestmark = [pytest.mark.adapters, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


class Guess(Action):
    message: str


class Answer(Observation):
    message: str


class Guessing(Environment):
    """The number is the seed; the episode ends with the right one."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.number, self.count = 0, 0

    def reset(self, seed=None, episode_id=None, **kwargs) -> Answer:
        self.number, self.count = seed or 0, 0
        return Answer(message="Which number?")

    def step(self, action: Guess, timeout_s=None, **kwargs) -> Answer:
        self.count += 1
        is_right = action.message == str(self.number)
        return Answer(message="Yes." if is_right else "No.", reward=float(is_right), done=is_right)

    @property
    def state(self) -> State:
        return State(step_count=self.count)


def test_our_client_plays_the_released_server():
    with running(create_fastapi_app(Guessing, Guess, Answer)) as url:
        env = make_env("openenv", {"url": url, "action_field": "message"})
        assert env.reset(7) == "Which number?"
        wrong, right = env.step("3"), env.step("7")
        assert (wrong.observation, wrong.reward, wrong.is_done, wrong.info["success"]) == ("No.", 0.0, False, 0.0)
        assert (right.observation, right.reward, right.terminated, right.info["success"]) == ("Yes.", 1.0, True, 1.0)
        env.close()


def test_a_wrong_field_is_the_servers_error():
    with running(create_fastapi_app(Guessing, Guess, Answer)) as url:
        env = make_env("openenv", {"url": url})
        with pytest.raises(RuntimeError, match=r"refused step: Invalid message"):
            env.step("3")


def test_the_released_client_plays_our_server():
    home = make_env("countdown")
    with running(build_app(Served(name="countdown", env_type="countdown", env_config={}))) as url:
        client = GenericEnvClient(base_url=url).sync()
        with client:
            start = client.reset(seed=3)
            assert start.observation["text"] == home.reset(3) and not start.done
            result = client.step({"text": home.solve()[0]})
            assert (result.reward, result.done, result.metadata["success"]) == (1.0, True, 1.0)
            assert client.state()["step_count"] == 1
