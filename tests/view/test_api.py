"""The routes, through the guard."""

from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from ragen.tracking.rundir import RunDir
from ragen.view.server import guarded
from tests.view.runs import write_run


def of(run_id: str) -> str:
    return f"/api/runs/{quote(run_id, safe='')}"


def test_the_list_has_every_run(client, tmp_path):
    write_run(tmp_path / "runs" / "a")
    write_run(tmp_path / "runs" / "x" / "b")
    found = client.get("/api/runs").json()
    assert found["roots"] == [str(tmp_path / "runs")]
    assert [run["id"] for run in found["runs"]] == ["0/a", "0/x/b"]


def test_an_id_with_slashes_is_one_segment(client, tmp_path):
    for name in ("x/b", "x", "x/series", "sp ace/ü%2F?#"):
        write_run(tmp_path / "runs" / name)
        found = client.get(of(f"0/{name}")).json()
        assert (found["id"], found["config"]["model_path"]) == (f"0/{name}", "tiny")
    assert client.get(of("0/x/series") + "/series").json()["steps"] == [0, 1]


def test_series_go_on_from_an_offset(client, tmp_path):
    run = RunDir(write_run(tmp_path / "runs" / "a"))
    first = client.get(of("0/a") + "/series").json()
    run.log(2, {"a": float("inf")})
    query = {"offset": first["offset"], "version": first["version"]}
    second = client.get(of("0/a") + "/series", params=query).json()
    assert (second["steps"], second["columns"], second["reset"]) == ([2], {"a": [None]}, False)


@pytest.mark.parametrize("offset", ["-1", "x", "1e3", "9" * 30, "٣"])
def test_a_wrong_number_is_a_sentence(client, tmp_path, offset):
    write_run(tmp_path / "runs" / "a")
    answer = client.get(of("0/a") + "/series", params={"offset": offset})
    assert answer.status_code == 400
    assert "expected a whole number" in answer.json()["error"]


@pytest.mark.parametrize(
    "path", ["/nope", "/api", "/api/runs/", "/api/runs/0%2Fnope", "/api/runs/0%2F..%2F..%2Fetc", "/api/runs/0%2Fa/nope"]
)
def test_what_is_not_there_is_a_sentence(client, tmp_path, path):
    write_run(tmp_path / "runs" / "a")
    answer = client.get(path)
    assert answer.status_code == 404
    assert set(answer.json()) == {"error"}
    assert str(tmp_path) not in answer.text


def test_a_run_that_is_deleted_is_gone(client, tmp_path):
    folder = write_run(tmp_path / "runs" / "a")
    assert client.get(of("0/a")).status_code == 200
    folder.rename(tmp_path / "elsewhere")
    assert client.get("/api/runs").json()["runs"] == []
    assert client.get(of("0/a")).status_code == 404


def test_the_glossary_has_a_sentence_per_metric(client):
    found = client.get("/api/glossary", params={"names": "timing_s/gen,train/X/success,no/such"}).json()
    assert found == {
        "timing_s/gen": "Seconds of the rollout.",
        "train/X/success": "Share of episodes that were solved.",
    }


def test_hostile_texts_arrive_as_texts(client, tmp_path):
    hostile = "<script>alert(1)</script>\0\u202e\ud800"
    RunDir(tmp_path / "runs" / "a").write_status("failed", hostile)
    answer = client.get("/api/runs")
    assert answer.json()["runs"][0]["reason"] == hostile
    assert answer.headers["content-type"] == "application/json"


def test_a_mistake_of_the_program_shows_no_traceback(tmp_path, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("/a/secret/path")

    monkeypatch.setattr("ragen.view.api.read_series", broken)
    write_run(tmp_path / "a")
    with TestClient(guarded([tmp_path]), base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        answer = client.get(of("0/a") + "/series")
    assert (answer.status_code, "secret" in answer.text) == (500, False)


def test_looking_changes_nothing(client, tmp_path):
    write_run(tmp_path / "runs" / "a")

    def files():
        return {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in sorted((tmp_path / "runs").rglob("*"))}

    before = files()
    for path in ("/api/runs", of("0/a"), of("0/a") + "/series"):
        assert client.get(path).status_code == 200
    assert files() == before
