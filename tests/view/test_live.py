"""Changes, as they are sent; the server is a real one, because a test client waits for the end of an answer."""

import json
import signal
from collections.abc import Iterator

import httpx

from ragen.tracking.rundir import RunDir
from ragen.view.live import Mark, Watch, changes
from ragen.view.reading.folders import Folders
from tests.view.runs import write_run
from tests.view.test_server import start


def test_only_changes_are_told():
    old, new = Mark(10, "running", 1, 0), Mark(20, "running", 2, 0)
    assert changes({"a": old, "b": old}, {"a": old, "b": old}) == {}
    found = changes({"a": old, "b": old}, {"a": new, "c": old})
    assert found["changed"]["a"] == {"metrics": 20, "state": "running", "episodes": 0}
    assert (set(found["changed"]), found["gone"]) == ({"a", "c"}, ["b"])


def test_a_mark_follows_state_metrics_and_episodes(tmp_path):
    folder = write_run(tmp_path / "a", state="running")
    before = Watch(Folders([tmp_path])).look()["0/a"]
    run = RunDir(folder)
    run.log(2, {"a": 1.0})
    run.write_status("finished")
    run.write_episodes("train_step_1", [])
    after = Watch(Folders([tmp_path])).look()["0/a"]
    assert (before.state, after.state) == ("running", "finished")
    assert after.metrics > before.metrics
    assert after.episodes > before.episodes == 0


def parsed(lines: Iterator[str]) -> Iterator[dict]:
    return (json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: "))


def test_new_steps_and_new_runs_arrive_and_listeners_keep_nobody_from_ending(tmp_path):
    run = RunDir(write_run(tmp_path / "a", state="running"))
    process, address = start(str(tmp_path))
    try:
        with httpx.stream("GET", f"{address}api/events", timeout=60) as answer:
            lines = answer.iter_lines()
            found = parsed(lines)
            first = next(found)["changed"]["0/a"]
            run.log(2, {"a": 1.0})
            second = next(found)["changed"]["0/a"]
            assert (first["state"], second["metrics"] > first["metrics"]) == ("running", True)
            write_run(tmp_path / "b")
            assert "0/b" in next(found)["changed"]
            with httpx.stream("GET", f"{address}api/events", timeout=60) as again:
                everything = next(parsed(again.iter_lines()))
            assert set(everything["changed"]) == {"0/a", "0/b"}
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
            assert (process.returncode, errors) == (0, "")
    finally:
        process.kill()


def test_a_browser_is_told_when_to_connect_again(tmp_path):
    process, address = start(str(tmp_path))
    try:
        with httpx.stream("GET", f"{address}api/events", timeout=60) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            head = [line for line, _ in zip(answer.iter_lines(), range(4))]
        assert "retry: 1000" in head
        assert "event: runs" in head
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
