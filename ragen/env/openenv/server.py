"""Any environment of ours behind OpenEnv's protocol: a WebSocket at /ws, and /health, /schema and /metadata.

A connection is a session with an environment of its own. Only this machine can connect, and no page of a browser.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ragen import __version__
from ragen.env import boundary
from ragen.env.base import StepResult, TextEnv
from ragen.env.boundary import EnvFault
from ragen.env.openenv import protocol
from ragen.errors import RagenError, needing_extra
from ragen.sockets import listen

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.websockets import WebSocket

HOST = "127.0.0.1"
PORT = 8000
HOSTS = ["127.0.0.1", "localhost"]
"""Names under which the server answers; another one is a page elsewhere that was pointed here."""
MAX_SESSIONS = 64
STEP_S = 60.0
"""Seconds for one call into the environment."""
IDLE_S = 3600.0
"""Seconds without a message after which a session is closed."""
MAX_SEED = 2**63
GRACE_S = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """What is served."""

    name: str
    env_type: str
    env_config: Mapping[str, Any]


class Session:
    """An environment that one client plays."""

    def __init__(self, served: Served) -> None:
        self.env: TextEnv = boundary.make(served.env_type, served.env_config)
        self.num_episodes, self.num_steps, self.is_over = 0, 0, True
        self.actions: dict[str, Any] = {}

    def reset(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Start a level; without a seed each episode has the next number."""
        seed, member = data.get("seed"), data.get("member", 0)
        seed = self.num_episodes if seed is None else seed
        for name, value in {"seed": seed, "member": member}.items():
            if type(value) is not int or not 0 <= value < MAX_SEED:
                raise protocol.NotAMessage(f"{name} must be a whole number from 0 to {MAX_SEED - 1}")
        start = boundary.start(self.env, seed, member)
        names = list((start.actions or {}).values())
        self.actions = {name.strip().lower(): action for action, name in (start.actions or {}).items()}
        self.num_episodes, self.num_steps, self.is_over = self.num_episodes + 1, 0, False
        listed = f"An answer is one of: {', '.join(names)}." if names else ""
        metadata = {
            "notes": "\n".join(text for text in (start.notes, listed) if text),
            "system_prompt": start.system_prompt,
            "example_answer": start.example,
            "level": start.content,
            "actions": names or None,
        }
        return answer(start.observation, reward=None, is_done=False, metadata=metadata)

    def step(self, data: Mapping[str, Any]) -> dict[str, Any]:
        text = data.get("text")
        if not isinstance(text, str) or set(data) - {"text", "metadata"}:
            raise protocol.NotAMessage('an action is {"text": "..."}')
        if self.is_over:
            raise protocol.NotAMessage("the episode is over or has not begun: send a reset")
        result: StepResult = boundary.step(self.env, self.action(text))
        self.num_steps += 1
        self.is_over = result.is_done
        metadata = result.info | {"terminated": result.terminated, "truncated": result.truncated}
        return answer(result.observation, reward=result.reward, is_done=result.is_done, metadata=metadata)

    def action(self, text: str) -> Any:
        """The text itself, or the id of the action that it names; an unknown name is an id that no action has."""
        return self.actions.get(text.strip().lower(), UNKNOWN) if self.actions else text

    def state(self) -> dict[str, Any]:
        return {"episode_id": str(self.num_episodes), "step_count": self.num_steps}


UNKNOWN = -(2**31)


def answer(text: str, *, reward: float | None, is_done: bool, metadata: dict[str, Any]) -> dict[str, Any]:
    """The data of an observation; its metadata is where typed clients and where generic ones look for it."""
    return {
        "observation": {"text": text, "metadata": metadata},
        "reward": reward,
        "done": is_done,
        "metadata": metadata,
    }


async def reply(session: Session, text: str) -> str | None:
    """The answer to one message; None where it ends the session."""
    from anyio import fail_after, to_thread

    try:
        kind, data = protocol.read(text)
    except protocol.NotAMessage as error:
        return protocol.write_error(f"Not a message: {error}.", "INVALID_JSON")
    if kind == "close":
        return None
    if kind == "state":
        return protocol.write("state", session.state())
    calls = {"reset": session.reset, "step": session.step}
    if kind not in calls:
        return protocol.write_error(f"Unknown type {kind[:50]!r}.", "UNKNOWN_TYPE")
    try:
        with fail_after(STEP_S):
            return protocol.write("observation", await to_thread.run_sync(calls[kind], data, abandon_on_cancel=True))
    except protocol.NotAMessage as error:
        return protocol.write_error(f"{kind}: {error}.", "VALIDATION_ERROR")
    except TimeoutError:
        session.is_over = True
        return protocol.write_error(f"{kind} took more than {STEP_S:g} s.", "EXECUTION_ERROR")
    except EnvFault as fault:
        session.is_over = True
        return protocol.write_error(f"The environment failed: {fault}", "EXECUTION_ERROR")


def build_app(served: Served, *, max_sessions: int = MAX_SESSIONS) -> Starlette:
    """The application; each connection to /ws is a session."""
    from anyio import fail_after, to_thread
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route, WebSocketRoute
    from starlette.websockets import WebSocketDisconnect

    num_sessions = 0

    async def play(websocket: WebSocket) -> None:
        nonlocal num_sessions
        origin = websocket.headers.get("origin")
        if origin is not None and urlsplit(origin).hostname not in HOSTS:
            await websocket.close(code=1008)
            return
        await websocket.accept()
        if num_sessions >= max_sessions:
            message = f"All {max_sessions} sessions are taken."
            await websocket.send_text(protocol.write_error(message, "CAPACITY_REACHED"))
            await websocket.close()
            return
        num_sessions += 1
        session = None
        try:
            session = await to_thread.run_sync(Session, served)
            while True:
                with fail_after(IDLE_S):
                    text = await websocket.receive_text()
                if (said := await reply(session, text)) is None:
                    break
                await websocket.send_text(said)
            await websocket.close()
        except (WebSocketDisconnect, TimeoutError):
            pass
        except (EnvFault, RagenError) as error:
            await websocket.send_text(protocol.write_error(str(error), "EXECUTION_ERROR"))
            await websocket.close()
        finally:
            num_sessions -= 1
            if session is not None:
                with contextlib.suppress(EnvFault):
                    boundary.guarded(session.env.close)

    description = f"The environment {served.env_type} of RAGEN."
    answers = {
        "/health": {"status": "healthy"},
        "/schema": SCHEMA,
        "/metadata": {"name": served.name, "description": description, "version": __version__},
    }

    async def tell(said: Mapping[str, Any], _: Request) -> JSONResponse:
        return JSONResponse(said)

    # Not by the path of the request: whoever mounts this application puts a prefix before it.
    routes = [WebSocketRoute("/ws", play), *(Route(path, partial(tell, said)) for path, said in answers.items())]
    return Starlette(routes=routes, middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS)])


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


SCHEMA = {
    "action": _object({"text": {"type": "string"}}, ["text"]),
    "observation": _object({"text": {"type": "string"}, "metadata": {"type": "object"}}, ["text"]),
    "state": _object({"episode_id": {"type": "string"}, "step_count": {"type": "integer"}}, []),
}


def serve(served: Served, *, port: int = PORT, max_sessions: int = MAX_SESSIONS) -> None:
    """Serve an environment until Ctrl-C. One is made before: a wrong option is said at once."""
    with needing_extra("openenv", "ragen serve needs Starlette, uvicorn and websockets, which are not all installed"):
        import starlette  # noqa: F401
        import uvicorn
        import websockets  # noqa: F401
    boundary.guarded(boundary.make(served.env_type, served.env_config).close)
    listener = listen(HOST, port, program="ragen serve", default_port=PORT)
    address = f"http://{HOST}:{listener.getsockname()[1]}"
    what = served.name if served.name == served.env_type else f"{served.name} ({served.env_type})"
    print(f"{what} by OpenEnv's protocol: {address}   (Ctrl-C ends it)", flush=True)
    config = uvicorn.Config(
        build_app(served, max_sessions=max_sessions),
        log_level=logging.WARNING,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
        ws="websockets-sansio",
        ws_max_size=protocol.MAX_MESSAGE,
        ws_per_message_deflate=False,
    )
    with listener, contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listener])
