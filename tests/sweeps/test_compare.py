"""`ragen compare`: arms of run directories with known numbers."""

import json
from pathlib import Path

import pytest

from ragen.cli import main
from ragen.tracking.rundir import RunDir

TAGS = ("FrozenLake", "Bandit", "CoordSokoban")


def make_run(folder: Path, seed: int, success: float, *, state="finished", tags=TAGS[:1]) -> str:
    """A run that begins at 0.1 and ends at `success` in every environment."""
    run = RunDir(folder / f"seed{seed}")
    n_groups = [100] * len(tags)
    run.write_config(
        f"seed: {{train: {seed}, val: 123}}\ntrainer: {{experiment_name: {folder.name}-{seed}}}\n"
        f"es_manager: {{val: {{group_size: 1, env_configs: {{tags: {list(tags)}, n_groups: {n_groups}}}}}}}"
    )
    for step, rate in ((0, 0.1), (10, success)):
        run.log(step, {f"val-env/{tag}/success": rate for tag in tags})
    run.write_status(state, early_stop="reward_variance_collapse" if state == "early_stopped" else None)
    return str(run.path)


def arm(folder: Path, *successes: float, **options) -> list[str]:
    return [make_run(folder, seed, success, **options) for seed, success in enumerate(successes, 1)]


def test_two_arms_are_compared_by_pairs_of_seeds(tmp_path, capsys):
    base, better = arm(tmp_path / "base", 0.3, 0.35, 0.33), arm(tmp_path / "better", 0.6, 0.64, 0.66)
    assert main(["compare", "--names", "base,better", *base, "--", *better]) == 0
    text = capsys.readouterr().out
    assert "| base | 1, 2, 3 | 0.327 [" in text and "| 0 of 3 | step 10 |" in text
    assert "| better | +0.307 [+0.255, +0.358] | 0.002 | - | +0.307" in text
    assert "| higher |" in text and "by pairs of equal seeds (3)" in text


def test_the_record_has_the_same_and_null_for_what_is_not_known(tmp_path, capsys):
    base, other = arm(tmp_path / "base", 0.3), arm(tmp_path / "other", 0.35)
    assert main(["compare", "--json", "--names", "a,b", "--difference", "0.1", *base, "--", *other]) == 0
    record = json.loads(capsys.readouterr().out)
    (found,) = record["comparisons"]
    assert found["gaps"]["final"]["estimate"] == {"mean": pytest.approx(0.05), "low": None, "high": None}
    assert found["verdict"] == "cannot tell from one seed"
    assert record["arms"][0]["final"]["mean"] == 0.3


def test_runs_that_collapsed_or_have_not_ended_are_named(tmp_path, capsys):
    base = arm(tmp_path / "base", 0.3, 0.35)
    other = [*arm(tmp_path / "other", 0.6), make_run(tmp_path / "other", 2, 0.0, state="early_stopped")]
    other.append(make_run(tmp_path / "other", 3, 0.9, state="running"))
    assert main(["compare", "--names", "a,b", *base, "--", *other]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"{other[2]} has not ended (its status is running), so it does not count." in text
    assert "early stop at 10 (reward_variance_collapse), not yet, step 10 |" in text
    assert "Collapsed runs: b: 1 of 2, 0.50 [0.09, 0.91]" in text and "covers, on average" in text
    assert "no verdict on the mean: runs collapsed" in text and "| b | +0.300 | - |" in text


def test_from_five_seeds_and_three_tasks_on_there_is_an_interquartile_mean(tmp_path, capsys):
    successes = (0.3, 0.35, 0.33, 0.31, 0.36)
    base, other = (arm(tmp_path / name, *successes, tags=TAGS) for name in ("base", "other"))
    assert main(["compare", "--names", "a,b", *base, "--", *other]) == 0
    text = capsys.readouterr().out
    assert "a: interquartile mean over 3 tasks and 5 seeds 0.330 [0.3" in text
    assert main(["compare", "--names", "a,b", *base[:4], "--", *other[:4]]) == 0
    assert "interquartile" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{a}"], "Give at least two arms, separated by --"),
        (["{a}", "--"], "Give at least two arms, separated by --"),
        (["{a}", "--", "{a}"], "The arms' first runs are called seed1, seed1: 2 arms need as many different names"),
        (["{a}", "--", "{b}", "--names", "x,y"], "--names stands behind a --, where runs are expected"),
        (["--names", "x,x", "{a}", "--", "{b}"], "--names x,x: 2 arms need as many different names"),
        (["--names", "x,y", "{a}", "{a}", "--", "{b}"], "have the same seed.train=1"),
        (["--names", "x,y", "{a}", "--", "{empty}"], "has no validation metrics"),
        (["--names", "x,y", "{a}", "--", "nowhere"], "nowhere"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path, capsys, words, message):
    folders = {name: arm(tmp_path / name, 0.5)[0] for name in ("a", "b", "empty")}
    (Path(folders["empty"]) / "metrics.jsonl").write_text("")
    assert main(["compare", *(word.format(**folders) for word in words)]) != 0
    found = capsys.readouterr()
    assert message in found.out + found.err and "Traceback" not in found.err
