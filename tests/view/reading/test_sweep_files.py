"""Which sweeps there are, from the files that drivers of runs leave."""

from pathlib import Path

from ragen.tracking.console import markdown_table
from ragen.view.reading.folders import Folders
from ragen.view.reading.sweep_files import find_run, find_sweeps, folder_in, read_outcome, read_table, runs_by_name
from tests.view.runs import write_run


def touch(*files: Path) -> None:
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


def test_a_sweep_is_the_folder_beside_its_summary_log(tmp_path, monkeypatch):
    logs = tmp_path / "logs"
    touch(logs / "kl.log", *(logs / "kl" / "tag" / value / f"{value}.command" for value in "ab"))
    touch(logs / "kl" / "tag" / "a" / "a.result.json")
    touch(tmp_path / "study" / "x-1.command", tmp_path / "study" / "x-1.log", tmp_path / "study" / "x-2.result.json")
    touch(tmp_path / "study" / "x-1" / "run" / "metrics.jsonl", tmp_path / "one" / "a.command")
    found = find_sweeps([tmp_path])
    assert sorted(found) == ["0/logs/kl", "0/study"]  # one run is no sweep
    assert [stem.name for stem in found["0/logs/kl"].stems] == ["a", "b"]
    assert [stem.name for stem in found["0/study"].stems] == ["x-1", "x-2"]
    assert list(find_sweeps([logs, tmp_path / "logs" / "kl"])) == ["0/kl"]  # once, by the first folder
    assert list(find_sweeps([tmp_path / "study"])) == ["0/."]
    monkeypatch.chdir(tmp_path)
    assert [*find_sweeps([Path()])] == [*found], "as `ragen view .` asks"


def test_files_inside_runs_make_no_sweep(tmp_path):
    write_run(tmp_path / "a")
    touch(tmp_path / "a" / "x.command", tmp_path / "a" / "deep" / "y.command", tmp_path / "a" / "deep" / "z.command")
    touch(tmp_path / "episodes" / "x.command", tmp_path / "episodes" / "y.command")
    assert find_sweeps([tmp_path]) == {}


def test_a_record_that_is_missing_damaged_or_foreign_is_a_run_that_has_not_ended(tmp_path):
    assert read_outcome(tmp_path / "a").status == "missing"
    for text in ("{", "[]", "{}", '{"status": "<b>"}', '{"status": 1}'):
        (tmp_path / "a.result.json").write_text(text)
        assert read_outcome(tmp_path / "a").status == "missing"
    (tmp_path / "a.result.json").write_text('{"status": "fail", "fields": 3, "times": [], "wall_time": "x"}')
    assert read_outcome(tmp_path / "a").wall_time is None


def test_of_two_runs_of_one_name_the_command_tells_which(tmp_path):
    for folder in ("x/a", "y/a", "b/run"):
        write_run(tmp_path / "runs" / folder)
    found = runs_by_name(Folders([tmp_path / "runs"]).entries().values())
    command = tmp_path / "a.command"
    command.write_text("bash -c 'python train.py trainer.default_local_dir=y/a && x' other=1\n")
    assert folder_in(command) == ("y", "a")
    entry = find_run(found["a"], command)
    assert entry and entry.id == "0/y/a"
    command.write_text("it's broken")
    entry = find_run(found["a"], command)
    assert entry and entry.id == "0/x/a"
    assert find_run([], command) is None
    assert [each.id for each in found["b"]] == ["0/b/run"]


def test_a_table_of_scaling_is_read_cell_by_cell(tmp_path):
    (tmp_path / "scaling.md").write_text(markdown_table(["model", "run"], [["a|b", "x"], ["<b>", "y"]]) + "\n")
    assert read_table(tmp_path / "scaling.md") == {"columns": ["model", "run"], "rows": [["a|b", "x"], ["<b>", "y"]]}
    assert list(find_sweeps([tmp_path])) == ["0/scaling.md"]
    more = markdown_table(["model"], [["x"]]) + "\n\nBelow:\n\n" + markdown_table(["other"], [["y"]]) + "\n"
    (tmp_path / "scaling.md").write_text(more)
    assert read_table(tmp_path / "scaling.md") == {"columns": ["model"], "rows": [["x"]]}
