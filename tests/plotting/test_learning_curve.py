"""Learning curves from a run directory made by hand."""

import json
import struct
import sys
import zlib

import pytest

from ragen.algorithms.statistics import Estimate
from ragen.cli import main
from ragen.config import load_config
from ragen.config.show import to_yaml
from ragen.errors import RagenError
from ragen.plotting.learning_curve import plot_learning_curve
from ragen.tracking.rundir import RunDir


def png_pixels(data: bytes) -> set[bytes]:
    """The distinct pixel rows of a PNG, undone only as far as needed to see that it is not blank."""
    position, stream, width = 8, b"", struct.unpack(">I", data[16:20])[0]
    while position < len(data):
        (length,) = struct.unpack(">I", data[position : position + 4])
        if data[position + 4 : position + 8] == b"IDAT":
            stream += data[position + 8 : position + 8 + length]
        position += 12 + length
    raw = zlib.decompress(stream)
    stride = 1 + 4 * width
    return {raw[start : start + stride] for start in range(0, len(raw), stride)}


@pytest.fixture
def run(tmp_path):
    run = RunDir(tmp_path / "run")
    run.write_config(to_yaml(load_config("quickstart", ["es_manager.val.env_groups=64"])))
    for step, sampled, greedy in ((0, 0.25, 0.5), (10, 0.5, 0.5), (20, 0.75, 0.8125)):
        run.log(step, {"val-env/FrozenLake/success": sampled, "val-env-greedy/FrozenLake/success": greedy})
    policies = {name: {"success": value} for name, value in (("silent", 0.0), ("random", 0.2), ("solver", 1.0))}
    (run.path / "preflight.json").write_text(json.dumps({"tags": {"FrozenLake": {"policies": policies}}}))
    return run.path


def test_a_curve_has_the_intervals_of_its_levels(run, tmp_path):
    curves = plot_learning_curve([run], tmp_path / "curve.png")["FrozenLake"]
    assert [curve.name for curve in curves] == ["sampled", "greedy"]
    assert curves[0].steps == [0, 10, 20]
    assert [estimate.mean for estimate in curves[0].estimates] == [0.25, 0.5, 0.75]
    # Wilson's interval of 16 in 64.
    assert (curves[0].estimates[0].low, curves[0].estimates[0].high) == pytest.approx((0.1602, 0.3682), abs=1e-4)


def test_a_curve_of_unseen_levels_is_drawn_where_others_were_seen(run, tmp_path):
    tag = "val-env/FrozenLake"
    for step, seen in ((30, 0), (40, 16)):
        names = {"success": 0.5, "success_unseen": 0.25, "success_unseen_low": 0.125, "success_unseen_high": 0.5}
        RunDir(run).log(
            step,
            {f"{tag}/{name}": value for name, value in (names | {"levels_seen": seen, "levels_unseen": 48}).items()},
        )
    curves = plot_learning_curve([run], tmp_path / "curve.png")["FrozenLake"]
    assert [curve.name for curve in curves] == ["sampled", "sampled, unseen levels", "greedy"]
    assert (curves[1].steps, curves[1].estimates[1]) == ([30, 40], Estimate(0.25, 0.125, 0.5))


def test_no_curve_of_unseen_levels_where_training_saw_all_of_them_at_once(run, tmp_path):
    tag = "val-env/FrozenLake"
    RunDir(run).log(30, {f"{tag}/success": 0.5, f"{tag}/success_unseen": 0.5, f"{tag}/levels_unseen": 64})
    RunDir(run).log(40, {f"{tag}/success": 0.5, f"{tag}/success_seen": 0.5, f"{tag}/levels_seen": 64})
    curves = plot_learning_curve([run], tmp_path / "curve.png")["FrozenLake"]
    assert [curve.name for curve in curves] == ["sampled", "greedy"]


def test_several_episodes_per_level_do_not_narrow_the_interval(run, tmp_path):
    before = plot_learning_curve([run], tmp_path / "curve.png")["FrozenLake"][0].estimates
    changes = ["es_manager.val.env_groups=64", "es_manager.val.group_size=8"]
    RunDir(run).write_config(to_yaml(load_config("quickstart", changes)))
    assert plot_learning_curve([run], tmp_path / "curve.png")["FrozenLake"][0].estimates == before


def test_the_figure_is_written_and_not_blank(run, capsys):
    assert main(["plot", str(run)]) == 0
    assert "0.250 [0.160, 0.368] at step 0 -> 0.750" in capsys.readouterr().out
    assert len(png_pixels((run / "learning_curve.png").read_bytes())) > 50


def test_without_matplotlib_the_numbers_are_printed_and_the_extra_is_named(run, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["plot", str(run)]) == 1
    said = capsys.readouterr()
    assert "0.250 [0.160, 0.368] at step 0 -> 0.750" in said.out
    assert said.err.startswith("error: Figures need matplotlib. Run: pip install ")
    assert not (run / "learning_curve.png").exists()


def test_a_run_without_validation_says_so(tmp_path):
    run = RunDir(tmp_path)
    run.write_config(to_yaml(load_config("quickstart")))
    run.log(1, {"actor/lr": 1.0})
    with pytest.raises(RagenError, match="test_freq"):
        plot_learning_curve([tmp_path], tmp_path / "curve.png")


def seed_run(folder, val_seed, successes):
    run = RunDir(folder)
    run.write_config(to_yaml(load_config("quickstart", ["es_manager.val.env_groups=64", f"seed.val={val_seed}"])))
    for step, success in successes.items():
        run.log(step, {"val-env/FrozenLake/success": success})
    return run.path


def test_several_runs_are_seeds_with_a_mean_and_its_interval(tmp_path, capsys):
    runs = [
        seed_run(tmp_path / "a", 100, {0: 0.25, 10: 0.50, 20: 0.75}),
        seed_run(tmp_path / "b", 300, {0: 0.25, 10: 0.60}),
        seed_run(tmp_path / "c", 500, {0: 0.25, 10: 0.70, 20: 0.75}),
    ]
    [curve] = plot_learning_curve(runs, tmp_path / "curve.png")["FrozenLake"]
    assert curve.steps == [0, 10], "steps that all have"
    # Student: 4.303 * 0.1 / sqrt(3); equal runs keep the error of their 64 levels, over the root of 3.
    assert curve.estimates[1].mean == pytest.approx(0.6)
    assert curve.estimates[1].above == pytest.approx(0.2484, abs=1e-4)
    assert curve.estimates[0].above == pytest.approx(0.1182 / 3**0.5, abs=1e-4)

    assert main(["plot", *map(str, runs)]) == 0
    out = capsys.readouterr().out
    assert "the mean of 3 runs" in out and f"{runs[1]} ended at step 10" in out
    assert (runs[0] / "learning_curve.png").exists()


def test_the_interval_of_a_mean_ends_where_success_ends(tmp_path):
    """Student's quantile of two runs is 12.7."""
    runs = [seed_run(tmp_path / name, 100, {0: success}) for name, success in (("a", 0.4), ("b", 0.8))]
    [curve] = plot_learning_curve(runs, tmp_path / "curve.png")["FrozenLake"]
    assert f"{curve.estimates[0]:.1f}" == "0.6 [0.0, 1.0]"


def test_runs_on_the_same_levels_share_their_error(tmp_path):
    runs = [seed_run(tmp_path / name, 100, {0: 0.25}) for name in "ab"]
    [curve] = plot_learning_curve(runs, tmp_path / "curve.png")["FrozenLake"]
    assert curve.estimates[0].above == pytest.approx(0.1182, abs=1e-4)


def test_runs_of_different_settings_are_no_seeds(run, tmp_path):
    other = RunDir(tmp_path / "other")
    other.write_config(to_yaml(load_config("quickstart_sokoban")))
    other.log(0, {"val-env/CoordSokoban/success": 0.5})
    with pytest.raises(RagenError, match=r"is validated on CoordSokoban, .* on FrozenLake"):
        plot_learning_curve([run, other.path], tmp_path / "curve.png")
