"""Runs of several sizes in one table and one figure."""

import math
from pathlib import Path

import pytest

from ragen.cli import main
from ragen.errors import RagenError
from ragen.plotting.scaling import count_parameters, group_runs, read_run, readable_ticks, short_count, size_in_name
from ragen.tracking.rundir import RunDir
from tests.trainer.runs import train


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("scaling")
    changes = ("trainer.val_before_train=True", "trainer.total_training_steps=1", "trainer.test_freq=1")
    small = train(root / "small", *changes, "trainer.experiment_name=small", "trainer.save_freq=1").path
    large = train(root / "large", *changes, "trainer.experiment_name=large", "trainer.save_freq=-1").path
    text = (large / "config.yaml").read_text()
    (large / "config.yaml").write_text(text.replace("path: tiny", "path: org/Model-0.5B-Instruct"))
    return small, large


@pytest.mark.parametrize(
    ("name", "size"),
    [("Qwen/Qwen2.5-0.5B-Instruct", 5e8), ("SmolLM2-135M-Instruct", 135e6), ("a/b_1_5B_x", 1.5e9), ("tiny", None)],
)
def test_the_size_in_a_name(name, size):
    assert size_in_name(name) == size


def test_counts_are_short():
    assert [short_count(n) for n in (31_000, 494_032_768, 3.09e9, 7e9, None)] == [
        "31k",
        "494M",
        "3.1B",
        "7.0B",
        "unknown",
    ]


def test_labels_of_like_sizes_do_not_cover_each_other():
    assert readable_ticks([5e8, 4.9e8, 1.5e9, 7e9]) == [4.9e8, 1.5e9, 7e9]
    assert readable_ticks([5e8, 5e8]) == [5e8]


def test_a_run_is_read_with_its_size_and_interval(runs):
    small, large = map(read_run, runs)
    assert small.num_parameters == count_parameters(runs[0])
    assert 10_000 < small.num_parameters < 1_000_000
    assert large.num_parameters == 5e8
    assert small.curve.steps == [0, 1]
    [size] = group_runs([small])
    assert size.final and size.final.mean == pytest.approx(small.curve.final)
    assert size.final.low <= size.final.mean <= size.final.high
    assert not math.isnan(small.final_score)


def test_one_table_and_one_figure(runs, tmp_path, capsys):
    assert main(["scaling", *map(str, runs), "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.index("small") < out.index("large")
    table = (tmp_path / "scaling.md").read_text()
    assert table.count("\n") == 4
    assert "| Model-0.5B-Instruct | 500M | large | 1 | 1 |" in table
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_without_validation_is_refused(tmp_path):
    run = RunDir(seed_of(tmp_path, "Model-0.5B", 1, 0.5))
    (run.path / "metrics.jsonl").write_text('{"step":1,"actor/lr":0.1}\n')
    with pytest.raises(RagenError, match="has no validation metrics"):
        read_run(run.path)


# --- several seeds of a model


def seed_of(folder: Path, model: str, seed: int, success: float, *, state: str = "finished") -> Path:
    """A run that begins at 0.1 and ends at `success` on 100 levels."""
    run = RunDir(folder / f"{model}-{seed}")
    end = f"-seed{seed}" if seed > 1 else ""
    run.write_config(
        f"seed: {{train: {seed}, val: 123}}\ntrainer: {{experiment_name: lake{end}}}\n"
        f"actor_rollout_ref: {{model: {{path: org/{model}}}}}\n"
        "es_manager: {val: {group_size: 1, env_configs: {tags: [FrozenLake], n_groups: [100]}}}"
    )
    for step, rate in ((0, 0.1), (10, success)):
        run.log(step, {"val-env/FrozenLake/success": rate, "val-env/FrozenLake/score": 2 * rate})
    run.write_status(state)
    return run.path


def scaled(folder: Path, capsys, *runs: Path) -> tuple[str, str]:
    """The table and what stands below it."""
    assert main(["scaling", *map(str, runs), "--out", str(folder / "out")]) == 0
    capsys.readouterr()
    table, _, rest = (folder / "out" / "scaling.md").read_text().partition("\n\n")
    return table, rest


def test_seeds_of_a_model_are_one_row_with_an_interval_and_are_compared_by_pairs(tmp_path, capsys):
    small = [seed_of(tmp_path, "Model-0.5B", seed, rate) for seed, rate in ((1, 0.30), (2, 0.35), (3, 0.33))]
    large = [seed_of(tmp_path, "Model-3B", seed, rate) for seed, rate in ((1, 0.60), (2, 0.64), (3, 0.66))]
    table, rest = scaled(tmp_path, capsys, *large, *small)
    assert "| Model-0.5B | 500M | lake | 3 | 10 | 0.100 | 0.327 | 0.327 [" in table
    assert table.index("Model-0.5B") < table.index("Model-3B")
    assert "Success less that of Model-0.5B, lake:" in rest
    assert "| Model-3B, lake | +0.307 [+0.255, +0.358] | 0.002 |" in rest and "| higher |" in rest
    assert (tmp_path / "out" / "scaling.png").read_bytes().startswith(b"\x89PNG")


def test_a_collapsed_seed_takes_the_interval_and_the_verdict_away(tmp_path, capsys):
    small = [seed_of(tmp_path, "Model-0.5B", seed, 0.3 + seed / 100) for seed in (1, 2)]
    large = [seed_of(tmp_path, "Model-3B", 1, 0.6), seed_of(tmp_path, "Model-3B", 2, 0.0, state="early_stopped")]
    table, rest = scaled(tmp_path, capsys, *small, *large)
    assert "| Model-3B | 3.0B | lake | 2 (1 early_stopped) | 10 | 0.100 | 0.600 | 0.600 |" in table
    assert "no verdict on the mean: runs collapsed" in rest and "Collapsed runs: Model-3B, lake: 1 of 2" in rest


def test_runs_of_one_name_and_seed_do_not_repeat_each_other(tmp_path, capsys):
    runs = [seed_of(tmp_path / folder, "Model-3B", 1, 0.5) for folder in ("a", "b")]
    table, rest = scaled(tmp_path, capsys, *runs)
    assert table.count("| Model-3B | 3.0B | lake | 1 |") == 2 and rest == ""


def test_seeds_are_trained_elsewhere(tmp_path, capsys):
    run = seed_of(tmp_path, "Model-3B", 1, 0.5)
    assert main(["scaling", str(run), "--seeds", "3"]) == 1
    assert "--seeds 3: ragen scaling reads runs that have ended and starts none. Train" in capsys.readouterr().err
