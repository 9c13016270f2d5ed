"""A W&B server for one run: answers the GraphQL queries of wandb's public API over HTTP, and gives out files."""

import base64
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

KEY = "0123456789" * 4
AUTHORIZATION = "Basic " + base64.b64encode(f"api:{KEY}".encode()).decode()


class WandbServer(http.server.ThreadingHTTPServer):
    """Knows the run entity/project/abc123."""

    def __init__(self, *, rows: list[dict[str, Any]], files: dict[str, bytes], summary: dict[str, Any]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.rows, self.files, self.summary = rows, files, summary
        self.queries: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def run(self, variables: dict[str, Any]) -> dict[str, Any] | None:
        """The fields of the run that any query asks for."""
        name = variables.get("name") or variables.get("run") or variables.get("runName")
        if (variables["entity"], variables["project"], name) != ("entity", "project", "abc123"):
            return None
        first, end = variables.get("minStep", 0), variables.get("maxStep", float("inf"))
        asked = [file for file in variables.get("fileNames", []) if file in self.files]
        return {
            "id": "UnVu",
            "projectId": "1",
            "name": "abc123",
            "displayName": "my run",
            "state": "finished",
            "tags": [],
            "config": "{}",
            "systemMetrics": "{}",
            "summaryMetrics": json.dumps(self.summary),
            "historyLineCount": len(self.rows),
            "historyKeys": {"lastStep": max((row["_step"] for row in self.rows), default=-1), "keys": {}},
            "history": [json.dumps(row) for row in self.rows if first <= row["_step"] < end],
            "parquetHistory": {"parquetUrls": [], "liveData": []},
            "user": {"name": "someone", "username": "someone"},
            "fileCount": len(asked),
            "files": {
                "edges": [{"node": self.file(name), "cursor": name} for name in asked],
                "pageInfo": {"endCursor": None, "hasNextPage": False},
            },
        }

    def file(self, name: str) -> dict[str, Any]:
        size = len(self.files[name])
        return {"id": name, "name": name, "url": f"{self.url}/files/{name}", "directUrl": "", "sizeBytes": str(size)}


class Handler(http.server.BaseHTTPRequestHandler):
    server: WandbServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path != "/graphql":  # wandb's own telemetry
            return self.answer(404, b"")
        if self.headers["Authorization"] != AUTHORIZATION:
            return self.answer(401, b'{"errors": [{"message": "not logged in"}]}')
        request = json.loads(body)
        self.server.queries.append(request["query"])
        variables = request.get("variables") or {}
        data = {"viewer": {"id": "1", "entity": "entity", "username": "someone", "flags": "{}", "teams": {"edges": []}}}
        if "entity" in variables:
            data["project"] = {"internalId": "1", "run": self.server.run(variables)}
        return self.answer(200, json.dumps({"data": data}).encode())

    def do_GET(self) -> None:
        content = self.server.files.get(unquote(self.path).removeprefix("/files/"))
        self.answer(404 if content is None else 200, content or b"")

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serve(**content: Any) -> Iterator[WandbServer]:
    """A running server."""
    with WandbServer(**content) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
