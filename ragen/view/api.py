"""The routes: JSON out, one small function each. Nothing is written, and no request names a path.

    GET /api/runs                      the list
    GET /api/runs/ID                   a run: its row, configuration, status, references
    GET /api/runs/ID/series            its metrics as columns, from ?offset= on
    GET /api/runs/ID/episodes          headers of those that fit: ?file= tag= status= min= text= sort= page= ...
    GET /api/runs/ID/episode           one of them: ?file= index=, prompts=1 for the tokens of its prompts
    GET /api/runs/ID/group             the members of a group: ?file= group=
    GET /api/runs/ID/filter            the groups of a step and what filters keep: ?step=
    GET /api/runs/ID/gradients         the gradient analyses
    GET /api/sweeps                    lists of runs: sweeps, studies, searches
    GET /api/sweeps/ID                 one of them: its values with every seed
    GET /api/events                    server-sent events: which runs have changed
    GET /api/glossary?names=a,b        a sentence per metric
    GET and POST /api/play...          levels that a person or a model plays, see playing/routes.py
    GET / and /assets/FILE             the page

An id holds slashes and stands in the address as one encoded segment.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ragen.errors import RagenError
from ragen.tracking.glossary import sentences_of
from ragen.view import live, pages
from ragen.view.playing.model import Model
from ragen.view.playing.routes import PlayApi
from ragen.view.playing.session import whole_number
from ragen.view.reading.encoding import to_json
from ragen.view.reading.episodes import group_of, list_episodes, read_episode
from ragen.view.reading.filters import replay
from ragen.view.reading.folders import Entry, Folders, NotThere
from ragen.view.reading.gradients import read_gradients
from ragen.view.reading.index import Index
from ragen.view.reading.series import read_series
from ragen.view.reading.summary import Summaries, card
from ragen.view.reading.sweeps import read_list, read_sweep

MOST_NAMES = 2000
"""Metrics whose sentence is asked for at once."""


class Json(Response):
    media_type = "application/json"

    def __init__(self, content: Any, status_code: int = 200) -> None:
        super().__init__(to_json(content), status_code, {"cache-control": "no-store"})


class Api:
    """What the routes share."""

    def __init__(self, folders: Folders, model: Model | None = None) -> None:
        self.folders, self.model = folders, model
        self.summaries = Summaries()
        self.indexes: dict[Path, Index] = {}
        self.watch = live.Watch(folders)
        self.of_run: dict[str, Callable[[Request, Entry], Any]] = {
            "": self.run,
            "series": self.series,
            "episodes": self.episodes,
            "episode": self.episode,
            "group": self.group,
            "filter": self.filter,
            "gradients": self.gradients,
        }
        """What is asked of a run: the segment behind its id -> answer."""

    def routes(self) -> list[Route]:
        return [
            Route("/api/runs", self.runs),
            Route("/api/runs/{rest:path}", self.about_run),
            Route("/api/sweeps", self.sweeps),
            Route("/api/sweeps/{rest:path}", self.sweep),
            Route("/api/events", self.events),
            Route("/api/glossary", self.glossary),
            *PlayApi(self.folders, self.model, respond=Json).routes(),
            Route("/", self.asset),
            Route("/assets/{name:path}", self.asset),
        ]

    # Starlette runs plain functions in threads: a slow disk keeps nobody else waiting.

    def runs(self, request: Request) -> Response:
        entries = self.folders.entries(is_fresh=True)
        roots = [str(root) for root in self.folders.roots]
        return Json({"roots": roots, "runs": self.summaries.rows(entries.values())})

    def about_run(self, request: Request) -> Response:
        # The decoded path no longer tells the slashes of an id from those between segments.
        raw = request.scope["raw_path"].partition(b"?")[0].decode("latin-1")
        run_id, _, what = raw.removeprefix("/api/runs/").partition("/")
        answer = self.of_run.get(what)
        if answer is None:
            raise NotThere("There is no such address.")
        return Json(answer(request, self.folders.find(unquote(run_id))))

    def run(self, request: Request, entry: Entry) -> dict[str, Any]:
        return self.summaries.row(entry) | card(entry.path) | {"advisories": self.summaries.advisories(entry)}

    def series(self, request: Request, entry: Entry) -> dict[str, Any]:
        query = request.query_params
        return read_series(entry.path, whole_number(query, "offset"), query.get("version", ""))

    def episodes(self, request: Request, entry: Entry) -> dict[str, Any]:
        return list_episodes(self.index(entry), request.query_params)

    def episode(self, request: Request, entry: Entry) -> dict[str, Any]:
        query = request.query_params
        file, number = query.get("file", ""), whole_number(query, "index")
        return read_episode(self.index(entry), file, number, has_prompts=query.get("prompts") == "1")

    def group(self, request: Request, entry: Entry) -> dict[str, Any]:
        query = request.query_params
        return group_of(self.index(entry), query.get("file", ""), whole_number(query, "group"))

    def filter(self, request: Request, entry: Entry) -> dict[str, Any]:
        query = request.query_params
        return replay(self.index(entry), whole_number(query, "step") if query.get("step") else None)

    def gradients(self, request: Request, entry: Entry) -> dict[str, Any]:
        return read_gradients(entry.path)

    def index(self, entry: Entry) -> Index:
        """The table of a run's episodes; one object per run, which keeps two threads from building it at once."""
        return self.indexes.setdefault(entry.path, Index(entry.path))

    def sweeps(self, request: Request) -> Response:
        return Json({"sweeps": read_list(self.folders)})

    def sweep(self, request: Request) -> Response:
        return Json(read_sweep(self.folders, request.path_params["rest"]))

    async def events(self, request: Request) -> Response:
        return live.respond(self.watch)

    def glossary(self, request: Request) -> Response:
        names = request.query_params.get("names", "").split(",")[:MOST_NAMES]
        return Json(sentences_of(names))

    def asset(self, request: Request) -> Response:
        """A file of the page, or where none is named the page itself."""
        content, kind = pages.read_page_file(request.path_params.get("name", pages.INDEX))
        return Response(content, media_type=kind, headers={"cache-control": "no-cache"})


def build_app(roots: list[Path], model: Model | None = None) -> Starlette:
    """The application without its guard."""
    handlers = {NotThere: failing(404), RagenError: failing(400), HTTPException: http_error, Exception: unexpected}
    return Starlette(routes=Api(Folders(roots), model).routes(), exception_handlers=handlers)


def failing(status: int) -> Callable[[Request, Exception], Response]:
    return lambda request, error: Json({"error": str(error)}, status)


def http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = "There is no such address." if error.status_code == 404 else error.detail
    return Json({"error": text}, error.status_code)


def unexpected(request: Request, error: Exception) -> Response:
    """A mistake of this program: the terminal shows the traceback, the page a sentence."""
    return Json({"error": f"The server failed ({type(error).__name__}). Its terminal says more."}, 500)
