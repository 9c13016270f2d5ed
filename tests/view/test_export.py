"""`ragen view DIR --export FILE`: what is chosen, what is refused, what is said."""

import base64
import gzip
import json
import re
from pathlib import Path

import pytest

from ragen.cli import main
from ragen.tracking.rundir import RunDir
from ragen.view import export as module
from ragen.view.export import choose, export, first_and_last, rounded, size_name, whole_series
from tests.view.reading.test_sweeps import success, swept, write_swept
from tests.view.runs import episode, write_run


def block(html: str, name: str) -> dict:
    found = re.search(rf'<script type="text/plain" id="{name}">([^<]*)</script>', html)
    assert found
    return json.loads(gzip.decompress(base64.b64decode(found[1])))


def write_episodes(folder: Path) -> Path:
    """Steps 1 to 3 with four episodes each, of which two are solved."""
    run = RunDir(write_run(folder))
    for step in (1, 2, 3):
        run.write_episodes(f"train_step_{step}", [episode(i // 2, i % 2, reward=i % 2) for i in range(4)])
    return folder


def test_the_command_writes_one_file_and_says_what_is_missing(tmp_path, capsys):
    write_episodes(tmp_path / "runs" / "a")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*")}
    assert main(["view", str(tmp_path / "runs"), "--export", str(tmp_path / "r.html"), "--episodes", "4"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"r\.html: \d+ KB, 1 run, 4 of 12 episodes", said)
    assert "Left out: 8 of 12 episodes" in said
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*")}
    assert [path.name for path in tmp_path.glob("*.*")] == ["r.html"]  # nothing half written lies beside it
    html = (tmp_path / "r.html").read_text()
    assert [run["id"] for run in block(html, "report")["runs"]] == ["0/a"]
    assert block(html, "report")["glossary"]["timing_s/step"].startswith("Seconds")
    run = block(html, "run-0")
    assert run["series"]["columns"]["val-env/FrozenLake/success"] == [0.25, 0.5]
    assert run["run"]["config"]["model_path"] == "tiny"
    held = [(one["file"], one["success"]) for one in run["episodes"]["held"]]
    assert held == [(f"train_step_{step}", is_solved) for step in (1, 3) for is_solved in (False, True)]
    assert [answer["step"] for answer in run["filters"]["answers"]] == [1, 3]


def test_a_report_holds_the_episodes_that_advisories_point_at(tmp_path):
    run = RunDir(write_episodes(tmp_path / "runs" / "a"))
    run.log(2, {"train/FrozenLake/success": 0.5})
    export([tmp_path / "runs"], tmp_path / "r.html", num_episodes=3)
    content = block((tmp_path / "r.html").read_text(), "run-0")
    held = {(one["file"], one["index"]) for one in content["episodes"]["held"]}
    [advisory] = content["run"]["advisories"]
    looked_at = {(each["file"], each["index"]) for each in advisory["episodes"]}
    assert looked_at == {("train_step_2", 0), ("train_step_2", 1)} < held and len(held) == 3
    assert [file["name"] for file in content["episodes"]["files"]] == ["train_step_1", "train_step_2", "train_step_3"]
    prompt = content["episodes"]["held"][0]["turns"][0]["prompt_tokens"]
    assert [token["mask"] for token in prompt] == [0, 0, 0]


def test_a_run_without_episodes_is_exported_all_the_same(tmp_path):
    write_run(tmp_path / "runs" / "a")
    export([tmp_path / "runs"], tmp_path / "r.html")
    run = block((tmp_path / "r.html").read_text(), "run-0")
    assert (run["episodes"]["held"], run["filters"]["answers"]) == ([], [])
    assert "no episodes of training" in run["filters"]["error"]


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("runs/a/report.html", "is a run, into which nothing is written"),
        ("runs/a/deeper/report.html", "is a run, into which nothing is written"),
        ("report.json", "ends in .html"),
        ("folder.html", "is a folder"),
        ("x.html", "There is no run below"),
    ],
)
def test_what_cannot_be_written_is_a_sentence(tmp_path, capsys, target, sentence):
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "empty").mkdir()
    write_run(tmp_path / "runs" / "a")
    source = "empty" if target == "x.html" else "runs"
    assert main(["view", str(tmp_path / source), "--export", str(tmp_path / target)]) == 1
    said = capsys.readouterr().err
    assert sentence in said and said.count("\n") == 1
    assert not (tmp_path / target).is_file()


@pytest.mark.parametrize("words", [["--episodes", "3"], ["--export", "r.html", "--port", "1"]])
def test_options_that_do_not_go_together_are_refused(words, capsys):
    with pytest.raises(SystemExit):
        main(["view", *words])
    assert "--export" in capsys.readouterr().err


def test_of_too_many_runs_the_newest_are_there(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(module, "MOST_RUNS", 1)
    for name, day in (("old", 1), ("new", 2), ("older", 0)):
        folder = write_run(tmp_path / "runs" / name)
        status = json.loads((folder / "status.json").read_text())
        (folder / "status.json").write_text(json.dumps(status | {"updated_at": f"2999-01-0{day + 1}T00:00:00+00:00"}))
    export([tmp_path / "runs"], tmp_path / "r.html")
    assert [run["name"] for run in block((tmp_path / "r.html").read_text(), "report")["runs"]] == ["new"]
    assert "the 2 runs that were updated first, of 3" in capsys.readouterr().out


def test_solved_and_failed_episodes_of_the_first_and_last_file_are_chosen_in_turn():
    files = [{"name": name, "rollout": name[0], "count": count} for name, count in (("a1", 2), ("a2", 2), ("a3", 2))]
    assert [file["name"] for file in first_and_last([*files, {"name": "b", "rollout": "b", "count": 0}])] == [
        "a1",
        "a3",
    ]
    headers = [{"file": file, "index": i, "success": i == 2} for file in ("a1", "a3") for i in range(3)]
    chosen = choose(headers, 5)
    assert [(one["file"], one["index"]) for one in chosen] == [("a1", 0), ("a1", 1), ("a1", 2), ("a3", 0), ("a3", 2)]
    assert choose(headers, 0) == []
    assert len(choose(headers, 100)) == 6


def test_metrics_that_are_read_in_parts_are_whole_columns(tmp_path, monkeypatch):
    run = RunDir(tmp_path / "a")
    for step in range(4):
        run.log(step, {"a": step / 3, **({"b": 1} if step > 1 else {})})
    monkeypatch.setattr("ragen.view.reading.series.LONGEST_READ", 60)
    found = whole_series(tmp_path / "a")
    assert (found["steps"], found["more"]) == ([0, 1, 2, 3], False)
    assert found["columns"] == {"a": [0.0, 0.333333, 0.666667, 1.0], "b": [None, None, 1, 1]}


def test_numbers_are_short():
    assert [rounded(value) for value in (1.23456789, 1e-9 / 3, 12345678, None)] == [
        1.23457,
        3.33333e-10,
        12345678,
        None,
    ]
    assert (size_name(1234567), size_name(5400)) == ("1.2 MB", "5 KB")


def test_sweeps_are_in_the_report(tmp_path):
    for seed in (1, 2):
        run = swept(tmp_path / "runs", "0", seed)
        write_swept(run, (0.2, 0.5), success(run))
    (tmp_path / "runs" / "logs" / "kl_sweep.log").touch()
    export([tmp_path / "runs"], tmp_path / "r.html")
    report = block((tmp_path / "r.html").read_text(), "report")
    assert [sweep["id"] for sweep in report["sweeps"]] == ["0/logs/kl_sweep"]
    assert report["sweep_answers"][0]["points"][0]["final"]["mean"] == 0.5
