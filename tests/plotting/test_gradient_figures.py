"""Seven files per analysed step, the same from a run directory, from W&B's files and from a W&B server."""

import csv
import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ragen.errors import RagenError
from ragen.plotting.buckets import analysis_steps, read_analysis
from ragen.plotting.gradient_command import choose_steps, main
from ragen.plotting.gradient_figures import draw_norms, draw_reward_std, draw_summary, write_analysis
from ragen.plotting.history import read_history, read_run_dir, split_row
from ragen.plotting.style import label_points, new_figure, number
from ragen.plotting.wandb_files import BLOCK, find_log
from ragen.tracking.names import numbered_buckets
from ragen.tracking.rundir import RunDir
from tests.plotting.png import has_drawing
from tests.plotting.synthetic import COLUMNS, STEPS, bucket_metrics, fill, log_run, tables
from tests.plotting.wandb_server import KEY, serve

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "gradient_analysis" / "plot_gradient_analysis.py"
PNGS = ["summary", "plots", "loss_plots", "reward_std", "normed_grads"]


def seven_files(step: int | str) -> set[str]:
    names = {f"gradient_analysis_{name}_step_{step}.png" for name in PNGS}
    return names | {
        f"gradient_analysis_metrics_step_{step}.json",
        f"gradient_analysis_bucket_rv_table_step_{step}.csv",
    }


def contents(folder: Path) -> dict[str, object]:
    """Files byte for byte; metrics by value, since W&B writes 1.0 as 1."""
    return {
        path.name: json.loads(path.read_bytes()) if path.suffix == ".json" else path.read_bytes()
        for path in folder.iterdir()
    }


def run_script(*arguments: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The program as a user types it, without any W&B login but the given one."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    clean |= {"HOME": str(cwd), "NETRC": str(cwd / ".netrc"), **environment}
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(
        command, cwd=cwd, env=clean, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run directory with analyses at steps 1, 51 and 101."""
    path = tmp_path_factory.mktemp("runs") / "my run"
    fill(RunDir(path))
    return path


@pytest.fixture(scope="module")
def drawn(run, tmp_path_factory) -> Path:
    """The figures of step 51 of the run directory."""
    folder = tmp_path_factory.mktemp("drawn")
    assert main(["--run-dir", str(run), "--step", "51", "--output-dir", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def wandb_folder(tmp_path_factory) -> Path:
    """The same run, logged by the real wandb without a network."""
    pytest.importorskip("wandb")
    path = tmp_path_factory.mktemp("offline")
    code = f"""
from pathlib import Path
from tests.plotting.synthetic import fill
from tests.tracking.trackers import some_trackers
with some_trackers(Path({str(path)!r}), "wandb") as trackers:
    fill(trackers)
"""
    environment = os.environ | {"WANDB_MODE": "offline", "HOME": str(path)}
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=True, timeout=120)
    (folder,) = path.glob("wandb/offline-run-*")
    return folder


def test_a_step_has_seven_files(drawn):
    assert {path.name for path in drawn.iterdir()} == seven_files(51)


@pytest.mark.parametrize("name", PNGS)
def test_a_figure_is_not_blank(drawn, name):
    assert has_drawing(drawn / f"gradient_analysis_{name}_step_51.png")


def test_the_metrics_are_flat_sorted_and_complete(drawn):
    text = (drawn / "gradient_analysis_metrics_step_51.json").read_text()
    metrics = json.loads(text)
    assert list(metrics) == sorted(metrics) and text.startswith('{\n  "_step": 51,\n  "actor/lr": 1e-06')
    assert metrics == {"_step": 51, "actor/lr": 1e-6, **bucket_metrics(51)}


def test_the_groups_are_listed_by_bucket(drawn):
    lines = (drawn / "gradient_analysis_bucket_rv_table_step_51.csv").read_text().splitlines()
    assert lines[0] == "bucket,reward_std"
    rows = [(row["bucket"], float(row["reward_std"])) for row in csv.DictReader(lines)]
    assert rows == [(row[0], row[2]) for table in tables(51).values() for row in table]
    assert len(rows) == 6 * 21


def test_the_files_of_wandb_give_the_same(wandb_folder, drawn, tmp_path, capsys):
    assert main(["--wandb-path", str(wandb_folder), "--step", "51", "--output-dir", str(tmp_path)]) == 0
    assert contents(tmp_path) == contents(drawn)
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / name) for name in ordered(51)]
    log = find_log(wandb_folder)
    assert log.stat().st_size > 2 * BLOCK, "records cross the ends of blocks"
    assert read_history(str(log)).steps == read_history(str(wandb_folder)).steps


def ordered(step: int) -> list[str]:
    pictures = [f"gradient_analysis_{name}_step_{step}.png" for name in PNGS]
    return [
        *pictures,
        f"gradient_analysis_metrics_step_{step}.json",
        f"gradient_analysis_bucket_rv_table_step_{step}.csv",
    ]


def test_every_step_and_table_of_wandb_is_read(wandb_folder, run):
    found, expected = read_history(str(wandb_folder)), read_history(str(run))
    assert found.steps == expected.steps
    assert found.name == "my_run" and found.run_id == wandb_folder.name.rpartition("-")[2]
    for step in STEPS:
        for name in tables(step):
            assert found.load_table(step, name) == expected.load_table(step, name) != None  # noqa: E711
    assert found.load_table(10, "grad_norm/bucket_1/group_rv_table") is None
    summary = dict(found.summary)
    assert {name: summary[name] for name in expected.summary} == expected.summary


def test_a_wandb_file_that_was_cut_short_gives_what_is_whole(wandb_folder, tmp_path, caplog):
    whole = read_history(str(wandb_folder)).steps
    data = find_log(wandb_folder).read_bytes()
    log = tmp_path / "run-cut.wandb"
    log.write_bytes(data[: len(data) * 2 // 3])
    found = read_history(str(log)).steps
    assert 0 < len(found) < len(whole)
    assert found == {step: whole[step] for step in list(whole)[: len(found)]}
    assert "incomplete record" in caplog.text
    # A damaged byte is noticed by its checksum.
    log.write_bytes(data[: BLOCK + 500] + bytes([data[BLOCK + 500] ^ 1]) + data[BLOCK + 501 :])
    damaged = read_history(str(log)).steps
    assert damaged == {step: whole[step] for step in list(whole)[: len(damaged)]} and len(damaged) < len(whole)


def test_a_file_that_is_no_wandb_log_is_named(tmp_path):
    (tmp_path / "run-x.wandb").write_bytes(b"something else")
    with pytest.raises(RagenError, match=r"run-x.wandb is no W&B log"):
        read_history(str(tmp_path))


def wandb_content() -> dict:
    """Rows, files and summary as the server has them: tables are references to files."""
    rows, files, summary = [], {}, {}
    for step, metrics, own in log_run():
        row = {"_step": step, "_runtime": 1.5, "_timestamp": 1.7e9, **metrics}
        for name, cells in own.items():
            path = f"media/table/{name}_{step}.table.json"
            files[path] = json.dumps({"columns": COLUMNS, "data": cells}).encode()
            row[name] = {"_type": "table-file", "path": path, "ncols": 3, "nrows": len(cells), "size": len(files[path])}
        rows.append(row)
        summary |= row
    return {"rows": rows, "files": files, "summary": summary}


def test_a_run_at_the_server_gives_the_same(drawn, tmp_path):
    pytest.importorskip("wandb")
    with serve(**wandb_content()) as server:
        login = {"WANDB_API_KEY": KEY, "WANDB_BASE_URL": server.url}
        result = run_script("--wandb-path", "entity/project/abc123", "--step", 51, cwd=tmp_path, **login)
        assert result.returncode == 0, result.stderr
        folder = tmp_path / "gradient_analysis_outputs" / "my_run_abc123"
        assert contents(folder) == contents(drawn)
        assert any("history(" in query for query in server.queries)

        result = run_script("--wandb-path", "entity/project/nobody", cwd=tmp_path, **login)
        assert result.returncode == 1
        assert "entity/project/nobody: the W&B server does not give this run" in result.stderr
        assert "Traceback" not in result.stderr


def test_without_a_login_the_message_says_what_to_set(tmp_path):
    pytest.importorskip("wandb")
    result = run_script("--wandb-path", "entity/project/abc123", cwd=tmp_path, WANDB_BASE_URL="http://127.0.0.1:9")
    assert result.returncode == 1
    assert "there is no W&B login. Set WANDB_API_KEY or run `wandb login`" in result.stderr
    result = run_script("--wandb-path", "entity/project/abc123", cwd=tmp_path, WANDB_API_KEY="short")
    assert result.returncode == 1 and "WANDB_API_KEY invalid" in result.stderr.splitlines()[-1]


def test_steps_are_listed(run, capsys):
    assert main(["--wandb-path", str(run), "--list-steps"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "my run: 3 gradient analyses",
        "  step 1: 6 buckets",
        "  step 51: 6 buckets",
        "  step 101: 6 buckets",
    ]


def test_a_step_without_analysis_is_an_error_that_lists_the_others(run, tmp_path, capsys):
    assert main(["--run-dir", str(run), "--step", "2", "3", "--output-dir", str(tmp_path)]) == 1
    assert "--step 2 3: no analysis there. Available: 1, 51, 101." in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_missing_step_among_others_is_named(capsys):
    assert choose_steps([1, 51, 101], [101, 2, 1]) == [1, 101]
    assert "no analysis at step 2. Available: 1, 51, 101." in capsys.readouterr().err


def test_a_run_without_buckets_says_how_to_get_them(tmp_path, capsys):
    RunDir(tmp_path).log(1, {"grad_norm/bucket_1/task": 0.0, "grad_norm/all/task": 1.0})
    assert main(["--run-dir", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert "no bucket metrics" in error and "only grad_norm/all" in error and "gradient_analysis_mode=True" in error


def test_the_summary_stands_in_where_no_step_has_buckets(run, tmp_path):
    whole = read_run_dir(run)
    history = replace(whole, steps={1: {"actor/lr": 1e-6}}, load_table=lambda step, name: None)
    assert analysis_steps(history) == ["summary"]
    write_analysis(read_analysis(history, "summary"), history.at("summary"), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == seven_files("summary")
    metrics = json.loads((tmp_path / "gradient_analysis_metrics_step_summary.json").read_text())
    assert metrics["grad_norm/bucket_6/task"] == 4.8 and "_step" not in metrics
    assert (tmp_path / "gradient_analysis_bucket_rv_table_step_summary.csv").read_text() == "bucket,reward_std\n"


def test_the_batch_before_the_filter_has_figures_of_its_own(tmp_path):
    run = RunDir(tmp_path / "run")
    run.log(1, bucket_metrics(1) | bucket_metrics(1, prefix="grad_norm_prefilter", kl=False))
    for name, rows in tables(1, "grad_norm_prefilter").items():
        run.log_table(1, name, COLUMNS, rows)
    assert main(["--run-dir", str(run.path), "--prefilter", "--output-dir", str(tmp_path / "out")]) == 0
    assert {path.name for path in (tmp_path / "out" / "prefilter").iterdir()} == seven_files(1)
    title = draw_reward_std(read_analysis(read_run_dir(run.path), 1, "grad_norm_prefilter")).get_suptitle()
    assert title == "Reward std per bucket before the filter, step 1"


def test_a_source_that_does_not_exist_is_an_error(tmp_path, capsys):
    assert main(["--run-dir", "no/such/run"]) == 1
    assert "no/such/run does not exist" in capsys.readouterr().err
    with pytest.raises(RagenError, match="neither a folder that exists nor entity/project/run_id"):
        read_history("no/such/folder/here")
    with pytest.raises(RagenError, match=r"neither metrics.jsonl nor \*.wandb"):
        read_history(str(tmp_path))


def test_buckets_are_in_the_order_of_their_numbers():
    names = [
        "grad_norm/bucket_10/task",
        "grad_norm/bucket_2/task",
        "grad_norm/all/task",
        "grad_norm_prefilter/bucket_3/kl",
    ]
    assert numbered_buckets(names, "grad_norm") == ["bucket_2", "bucket_10"]


def texts(figure) -> list[str]:
    return [text.get_text() for axis in figure.axes for text in axis.texts]


def test_a_term_that_is_off_is_said_to_be_off(tmp_path):
    run = RunDir(tmp_path)
    fill(run, kl=False, noise=False)
    analysis = read_analysis(read_run_dir(tmp_path), 1)
    assert "KL is off\n(zero in every bucket)" in texts(draw_norms(analysis))
    assert draw_summary(analysis).axes[2].get_ylabel() == "entropy norm (the other is zero)"


def test_a_term_that_was_probed_and_has_no_gradient_is_not_called_off(tmp_path):
    """As KL at the first step, when the policy is its own reference."""
    RunDir(tmp_path).log(1, bucket_metrics(1, kl=False, noise=True))
    assert "KL is on, but zero in every bucket" in texts(draw_norms(read_analysis(read_run_dir(tmp_path), 1)))


def test_a_bucket_without_noise_measures_leaves_those_of_the_others(tmp_path):
    """As a bucket of one group."""
    metrics = {
        name: value
        for name, value in bucket_metrics(1).items()
        if not (name.startswith("grad_norm/bucket_2/") and ("norm_" in name.split("/")[2] or "split_half" in name))
    }
    RunDir(tmp_path).log(1, metrics)
    analysis = read_analysis(read_run_dir(tmp_path), 1)
    intervals = analysis.intervals("task")
    assert intervals is not None and intervals[0] == pytest.approx((6.7 * 0.85, 6.7 * 1.15))
    assert all(map(math.isnan, intervals[1]))
    assert len(draw_summary(analysis).axes) == 4


def test_noise_measures_are_drawn_where_they_were_logged(run, tmp_path):
    with_noise = draw_summary(read_analysis(read_run_dir(run), 1))
    assert len(with_noise.axes) == 4
    assert with_noise.axes[3].get_title().startswith("split-half cosine")
    legend = with_noise.axes[1].get_legend()
    assert legend is not None
    assert [label.get_text() for label in legend.get_texts()] == [
        "norm",
        "sampling noise removed",
        "95 % of other batches",
    ]
    plain = RunDir(tmp_path)
    fill(plain, noise=False)
    without = draw_summary(read_analysis(read_run_dir(tmp_path), 1))
    assert len(without.axes) == 3 and without.axes[1].get_legend() is None


def test_no_axis_cuts_the_data(run):
    """Regularizer norms above 1, as late in training, are inside the axis."""
    history = read_run_dir(run)
    for step in analysis_steps(history):
        analysis = read_analysis(history, step)
        axis = draw_summary(analysis).axes[2]
        low, high = axis.get_ylim()
        sums = [ends[1] for ends in analysis.intervals("kl", "entropy") or []]
        assert low == 0 and max(sums) < high
    assert max(sums) > 1


def test_a_table_of_other_groups_is_not_drawn_as_boxes(run, tmp_path):
    own = draw_summary(read_analysis(read_run_dir(run), 1))
    assert own.axes[0].get_title() == "groups of each bucket"
    other = RunDir(tmp_path)
    other.log(1, bucket_metrics(1))
    for name, rows in tables(1).items():
        other.log_table(1, name, COLUMNS, [[bucket, group, std + 0.01] for bucket, group, std in rows])
    assert draw_summary(read_analysis(read_run_dir(tmp_path), 1)).axes[0].get_title() == "mean, smallest and largest"


def test_strange_values_do_not_stop_the_figures(tmp_path):
    run = RunDir(tmp_path / "run")
    metrics = bucket_metrics(1)
    metrics["grad_norm/bucket_2/task"], metrics["grad_norm/bucket_3/kl"] = math.nan, math.inf
    run.log(1, metrics)
    assert main(["--run-dir", str(run.path), "--output-dir", str(tmp_path / "out")]) == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == seven_files(1)
    exported = json.loads((tmp_path / "out" / "gradient_analysis_metrics_step_1.json").read_text())
    assert exported["grad_norm/bucket_2/task"] is None and exported["grad_norm/bucket_3/kl"] is None


def test_one_bucket_and_no_variance_can_be_drawn(tmp_path):
    """The figure of the reward std exists although every value is zero."""
    metrics = {name: value for name, value in bucket_metrics(101).items() if "/bucket_1/" in name}
    RunDir(tmp_path).log(1, metrics | {f"grad_norm/bucket_1/reward_std_{k}": 0.0 for k in ("mean", "min", "max")})
    analysis = read_analysis(read_run_dir(tmp_path), 1)
    assert "0 in every bucket" in texts(draw_reward_std(analysis))
    assert "Q1" in texts(draw_summary(analysis))


def test_rows_of_wandb_are_split_into_numbers_and_tables():
    row = {
        "_step": 3,
        "a": 1,
        "b": "NaN",
        "text": "no number",
        "t": {"_type": "table-file", "path": "media/t.json"},
        "u._type": "table-file",
        "u.path": "media/u.json",
        "u.nrows": 4,
    }
    metrics, found = split_row(row)
    assert metrics["a"] == 1 and math.isnan(metrics["b"]) and set(metrics) == {"a", "b"}
    assert found == {"t": "media/t.json", "u": "media/u.json"}


def test_labels_of_points_do_not_cover_each_other():
    figure = new_figure(4, 3)
    axis = figure.subplots()
    points = {f"Q{n}": (0.1 * n, 1.0 + 0.1 * (n % 2)) for n in range(1, 9)} | {"Q9": (0.9, 1.1), "Q10": (0.9001, 1.1)}
    axis.plot(*zip(*points.values(), strict=True), "o")
    figure.draw_without_rendering()
    label_points(axis, points)
    labels = [text for text in axis.texts if text.get_text()]  # lines to far labels are texts without words
    assert [label.get_text() for label in labels] == [*(f"Q{n}" for n in range(1, 9)), "Q9-Q10"]
    boxes = [label.get_window_extent() for label in labels]
    assert not any(a.overlaps(b) for n, a in enumerate(boxes) for b in boxes[:n])


@pytest.mark.parametrize(("value", "text"), [(26.0, "26"), (0.04312, "0.0431"), (-1.34e-4, "-1.34e-4"), (0.0, "0")])
def test_numbers_are_short(value, text):
    assert number(value) == text
