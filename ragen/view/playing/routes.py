"""The routes of the Play page. They are the only ones that take a POST, and what it says stays in memory.

    GET  /api/play            what can be played: ?run=
    GET  /api/play/solver     the solver's episode on a level: ?run= tag= seed= member=
    POST /api/play/start      begin an episode: {"run", "tag", "seed", "member"}
    POST /api/play/reply      answer a turn: {"session", "turn", "text"}
    POST /api/play/model      let the model of --play answer it: {"session", "turn", "temperature"}

Tested in tests/view/test_playing_session.py.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ragen.errors import RagenError
from ragen.view.playing.model import Model, answer_turn, temperature_of
from ragen.view.playing.session import Session, Sessions, check_turn, describe, level_of, solve
from ragen.view.reading.folders import Folders

LARGEST_BODY = 1_000_000
"""Bytes of a POST."""

Fields = Mapping[str, Any]


class PlayApi:
    """Levels in play, and the answers about them."""

    def __init__(self, folders: Folders, model: Model | None, *, respond: Callable[[Any], Response]) -> None:
        self.folders, self.model, self.respond = folders, model, respond
        self.sessions = Sessions()

    def routes(self) -> list[Route]:
        posts = {"start": self.start, "reply": self.reply, "model": self.let_model_reply}
        return [
            Route("/api/play", self.offer),
            Route("/api/play/solver", self.solver),
            *(Route(f"/api/play/{name}", self._posted(act), methods=["POST"]) for name, act in posts.items()),
        ]

    def offer(self, request: Request) -> Response:
        model = self.model.describe() if self.model else None
        return self.respond(describe(self._run(request.query_params)) | {"model": model})

    def solver(self, request: Request) -> Response:
        query = request.query_params
        return self.respond(solve(level_of(self._run(query), query)))

    def start(self, fields: Fields) -> dict[str, Any]:
        name, session = self.sessions.start(level_of(self._run(fields), fields))
        return self._state(name, session)

    def reply(self, fields: Fields) -> dict[str, Any]:
        text = fields.get("text")
        if not isinstance(text, str):
            raise RagenError("text: expected a text.")
        return self._play(fields, lambda session: session.say(text))

    def let_model_reply(self, fields: Fields) -> dict[str, Any]:
        model, temperature = self.model, temperature_of(fields.get("temperature"))
        if model is None:
            raise RagenError("No model plays here. Start ragen view with --play CHECKPOINT.")
        return self._play(fields, lambda session: answer_turn(session, model, temperature))

    def _play(self, fields: Fields, act: Callable[[Session], None]) -> dict[str, Any]:
        """Play the present turn of a session."""
        name = str(fields.get("session", ""))
        session = self.sessions.find(name)
        with session.lock:
            check_turn(session, fields.get("turn"))
            act(session)
        return self._state(name, session)

    def _state(self, name: str, session: Session) -> dict[str, Any]:
        return {"session": name} | session.to_json()

    def _run(self, fields: Fields) -> Path | None:
        run = fields.get("run")
        return self.folders.find(str(run)).path if run else None

    def _posted(self, act: Callable[[Fields], Any]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            fields = await read_fields(request)
            return self.respond(await run_in_threadpool(act, fields))

        return answer


async def read_fields(request: Request) -> Fields:
    """The object that a POST holds."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_BODY:
            raise RagenError(f"The request is larger than {LARGEST_BODY:,} bytes.")
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RagenError("The request holds no JSON.") from error
    if not isinstance(fields, dict):
        raise RagenError("Expected a JSON object.")
    return fields
