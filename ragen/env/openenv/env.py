"""An OpenEnv server as an environment: `env_type: openenv, env_config: {url: "http://127.0.0.1:8000"}`.

Needs the extra: pip install -e '.[openenv]'. What a server sends is data: it is read as JSON, its size is limited, and
a server that hangs or leaves ends the episode, not the run.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlsplit, urlunsplit

from ragen.config.bounds import Bound, Positive
from ragen.env.base import StepResult, TextEnv, step_info
from ragen.env.boundary import as_number
from ragen.env.openenv import protocol
from ragen.env.success_rule import parse_rule
from ragen.errors import ConfigError, needing_extra
from ragen.text import safe

SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
TEXTS = ("text", "message", "prompt", "observation", "response", "content", "echoed_message", "output", "result")
"""Fields of an observation that are taken for its text, in this order, where observation_field is empty."""
ENDS = {"terminated", "truncated"}


ADDRESS = Bound(lambda url: urlsplit(url).scheme in SCHEMES and urlsplit(url).netloc != "", "Write http://HOST:PORT.")


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenEnvConfig:
    """Which server, and where the texts are in its actions and observations."""

    url: Annotated[str, "Address of the server, http:// or https://.", ADDRESS] = "http://127.0.0.1:8000"
    action_field: Annotated[str, "Field of an action that holds the answer, such as message, code."] = "text"
    observation_field: Annotated[str, "Field of an observation that is shown; empty: its text, else all of it."] = ""
    success: Annotated[str, "When an episode is solved, where the server does not say so."] = "reward > 0"
    timeout_s: Annotated[Positive, "Seconds for the server's answer to one message."] = 60.0

    def __post_init__(self) -> None:
        parse_rule(self.success, "openenv.success")


class OpenEnvEnv(TextEnv):
    """A session of an OpenEnv server. The seed of a level is handed over; whether it names one is up to the server."""

    config_class = OpenEnvConfig
    max_tokens = 300

    def __init__(self, config: OpenEnvConfig | None = None) -> None:
        super().__init__(config)
        self.rule = parse_rule(self.config.success, "openenv.success")
        self.opened = contextlib.ExitStack()
        self.socket = open_socket(self.config.url, self.config.timeout_s, held_by=self.opened)
        self.reset(seed=0)

    def reset(self, seed: int, member: int = 0) -> str:
        data = self.ask("reset", {"seed": seed, "member": member})
        self.is_done, self.total, self.start = False, 0.0, metadata_of(data)
        self.text = self.text_of(data)
        return self.text

    def step(self, action: str) -> StepResult:
        assert not self.is_done, "the episode is over: call reset"
        data = self.ask("step", {self.config.action_field: action})
        before, self.text = self.text, self.text_of(data)
        info = numbers_of(metadata_of(data))
        reward = as_number(data.get("reward") or 0.0)
        self.is_done = data.get("done") is True
        self.total += reward
        is_truncated = self.is_done and info.get("truncated") == 1
        is_success = self.rule(reward=self.total, is_terminated=self.is_done and not is_truncated, info=info)
        known = step_info(is_valid=True, is_effective=self.text != before, is_success=self.is_done and is_success)
        return StepResult(
            observation=self.text,
            reward=reward,
            terminated=self.is_done and not is_truncated,
            truncated=is_truncated,
            info={**known, **{key: value for key, value in info.items() if key not in ENDS}},
        )

    def text_of(self, data: dict[str, Any]) -> str:
        """What an observation shows."""
        observation = data.get("observation")
        if not isinstance(observation, dict):
            return "" if observation is None else str(observation)
        if field := self.config.observation_field:
            if field not in observation:
                known = ", ".join(map(str, observation))
                raise ValueError(f"openenv.observation_field {field!r} is not in the observation, which has: {known}")
            return observation[field] if isinstance(observation[field], str) else json.dumps(observation[field])
        for name in TEXTS:
            if isinstance(observation.get(name), str):
                return observation[name]
        return json.dumps({key: value for key, value in observation.items() if key != "metadata"}, ensure_ascii=False)

    def ask(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        """The answer to a message; a server that refuses, hangs or leaves is an error that says so."""
        try:
            self.socket.send(protocol.write(kind, data))
            answer, found = protocol.read(self.socket.recv(timeout=self.config.timeout_s))
        except TimeoutError as error:
            raise TimeoutError(
                f"{self.config.url} did not answer within {self.config.timeout_s:g} s (openenv.timeout_s)"
            ) from error
        if answer == "error":
            raise RuntimeError(f"{self.config.url} refused {kind}: {safe(str(found.get('message', found)), 500)}")
        if answer != "observation":
            raise ValueError(f"{self.config.url} answered {kind} with {safe(answer, 50)!r}, expected an observation")
        return found

    def render(self) -> str:
        return self.text

    def notes(self) -> str:
        """What a server of ours tells about its environment; other servers tell nothing."""
        return text_in(self.start, "notes")

    def system_prompt(self) -> str:
        return text_in(self.start, "system_prompt")

    def example_answer(self) -> str:
        return text_in(self.start, "example_answer")

    def level_content(self) -> str:
        return text_in(self.start, "level")

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.socket.send(protocol.write("close", {}))
        with contextlib.suppress(Exception):
            self.opened.close()

    def __del__(self) -> None:
        if "socket" in vars(self):  # a session that nobody closed keeps a place on the server
            self.close()


def open_socket(url: str, timeout_s: float, *, held_by: contextlib.ExitStack) -> Any:
    """A WebSocket to the server."""
    with needing_extra("openenv", "env_type openenv needs websockets, which is not installed"):
        from websockets.exceptions import WebSocketException
        from websockets.sync.client import connect
    parts = urlsplit(url)
    address = urlunsplit((SCHEMES[parts.scheme], parts.netloc, f"{parts.path.rstrip('/')}/ws", "", ""))
    try:
        opening = connect(
            address,
            open_timeout=min(timeout_s, 20.0),
            close_timeout=1.0,
            max_size=protocol.MAX_MESSAGE,
            proxy=None,
            compression=None,  # a small message could unfold into a large one
        )
        return held_by.enter_context(opening)
    except (OSError, WebSocketException) as error:
        raise ConfigError(
            f"openenv.url {url!r}: no OpenEnv server answers there ({safe(str(error), 200)}). "
            "Start one, for example: ragen serve SimpleSokoban"
        ) from error


def metadata_of(data: dict[str, Any]) -> dict[str, Any]:
    """Beside the observation, or within it."""
    observation = data.get("observation")
    inner = observation.get("metadata") if isinstance(observation, dict) else None
    found = data.get("metadata") or inner
    return found if isinstance(found, dict) else {}


def numbers_of(metadata: dict[str, Any]) -> dict[str, float]:
    """The numbers in metadata; a server may send anything beside them."""
    return {key: float(value) for key, value in metadata.items() if isinstance(value, bool | int | float)}


def text_in(metadata: dict[str, Any], key: str) -> str:
    value = metadata.get(key)
    return value if isinstance(value, str) else ""
