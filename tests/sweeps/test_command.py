"""Whole sweeps over the embedded model, as a user runs them."""

from __future__ import annotations

import csv
import signal
from pathlib import Path

import pytest

from ragen.cli.sweep import main
from ragen.errors import ConfigError
from ragen.tracking.rundir import read_metrics, read_status
from ragen.trainer.checkpoints.checkpoint import LATEST
from tests.sweeps.sweeping import SMALL, fields_of, processes_in, start_sweep, wait_for
from tests.sweeps.test_report import figure_ink, read_csv

TIME_FIELDS = ["train_time", "eval_time", "total_time", "wall_time", "gpu", "status"]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_top_p_sweep_in_which_every_run_ends_differently(capsys):
    name = "sokoban_top_p_{}-tiny".format
    Path(f"logs/top_p_sweep_tiny/10/{name('10')}.log").mkdir(parents=True)  # a folder in the place of the file
    # No batch varies that much: a filter below 1 keeps nothing, which ends its run at once.
    rollout = "actor_rollout_ref.rollout.rollout_filter_"
    stop = [f"{rollout}top_p_prob_mode=linear", f"{rollout}selection_eps=100", f"{rollout}empty_stop_steps=1"]
    stop.append("ppo_mini_batch_size=4")
    values = ["--rollout_filter_value", "0.9,1.0,nofilter"]
    code = main(["top-p", *values, "--steps", "2", "--gpus", "0,1", *SMALL, *stop])
    assert code == 1, "a run failed"

    logs = Path("logs/top_p_sweep_tiny")
    results = {label: (logs / label / f"{name(label)}.result").read_text() for label in ("09", "10", "nofilter")}
    first = {label: fields_of(text.splitlines()[0]) for label, text in results.items()}
    names = ["value", "include_zero", "filter_value", *TIME_FIELDS]
    assert [*first["nofilter"]] == [*first["10"]] == names
    assert [*first["09"]] == [*names, "early_stop", "cause"]
    assert [first[label]["status"] for label in first] == ["early_stopped", "fail", "success"]
    assert (first["09"]["early_stop"], first["09"]["cause"]) == ("empty_filtered_steps", "strict filter")
    assert [first["nofilter"][key] for key in names[:3]] == ["nofilter", "True", "1.0"]
    assert [first["10"][key] for key in names[:3]] == ["1.0", "False", "1.0"]
    assert first["nofilter"]["gpu"] == "1xCPU"
    assert float(first["nofilter"]["train_time"].removesuffix("s")) > 0
    assert first["10"]["total_time"] == "N/A" and "cannot be started" in results["10"].splitlines()[1]

    run_dir = Path(f"model_saving/top_p_sweep_tiny/nofilter/{name('nofilter')}")
    records = read_metrics(run_dir)
    assert [record["step"] for record in records] == [0, 1, 2]
    assert {"val-env/Bandit/success", "actor/kl_loss", "timing_s/train_total"} <= records[2].keys()
    assert "  step 2/" in (logs / "nofilter" / f"{name('nofilter')}.log").read_text()

    summary = Path("logs/top_p_sweep_tiny.log").read_text()
    header, _, block = summary.partition("=== Summary ===\n")
    assert header.startswith("=== Top-p sweep, tiny, 20")
    assert "values: 0.9,1.0,nofilter | seeds: 1 | steps: 2 | GPUs: 0,1" in header
    assert block == "".join(results.values()), "in the order of the values"
    assert all(text in header for text in results.values()), "and as they ended"

    rows = read_csv(Path("logs/top_p_sweep_tiny_report.csv"))
    assert [row["status"] for row in rows] == ["early_stopped", "fail", "success"]
    assert [row["last_step"] for row in rows] == ["1", "", "2"]
    report = Path("logs/top_p_sweep_tiny_report.md").read_text()
    assert "early stop at 1 (empty_filtered_steps: strict filter)" in report
    assert "one seed, over 8 validation levels" in report
    assert len(figure_ink(Path("logs/top_p_sweep_tiny_report.png"))[0]) > 5000
    output = capsys.readouterr().out
    assert f"{name('09')}: early stopped" in output and f"{name('10')}: failed" in output


@pytest.mark.slow
def test_an_entropy_sweep_over_two_seeds():
    code = main(["entropy", "--entropy-values", "0.01", "--seeds", "2", "--steps", "1", "--gpus", "0,1", *SMALL])
    assert code == 0
    name = "sokoban_entropy_sweep_nofilter_001-tiny"
    folder = Path("logs/entropy_sweep_tiny/nofilter/001")
    plain, second = (fields_of((folder / f"{name}{end}.result").read_text().strip()) for end in ("", "-seed2"))
    assert [*plain] == ["entropy", "filter", "include_zero", *TIME_FIELDS]
    assert [*second] == ["entropy", "filter", "include_zero", "seed", *TIME_FIELDS]
    runs = [Path(f"model_saving/entropy_sweep_tiny/001/{name}{end}") for end in ("", "-seed2")]
    one, other = (read_metrics(run)[-1] for run in runs)
    assert one["actor/entropy"] != other["actor/entropy"], "other levels, other replies"
    with open("logs/entropy_sweep_tiny_curves.csv") as file:
        points = [(row["seed"], row["step"]) for row in csv.DictReader(file)]
    assert points == [("1", "0"), ("1", "1"), ("2", "0"), ("2", "1")]
    assert "Student's t over 2 seeds" in Path("logs/entropy_sweep_tiny_report.md").read_text()


def test_a_killed_sweep_loses_nothing(tmp_path):
    """Both processes are killed when the first run has ended and the second has a checkpoint."""
    arguments = ["kl", "--kl-values", "0,0.01", "--steps", "8", "--save-freq", "1", *SMALL]
    first, second = (
        tmp_path / f"model_saving/kl_sweep_tiny/{label}/sokoban_kl_sweep_nofilter_{label}-tiny"
        for label in ("0", "001")
    )
    sweep = start_sweep(tmp_path, *arguments)
    wait_for(lambda: (second / LATEST).exists() or sweep.poll() is not None, "a checkpoint of the second run")
    sweep.send_signal(signal.SIGKILL)
    sweep.communicate()
    wait_for(lambda: not processes_in(tmp_path), "the end of the training process", timeout=20)
    assert read_status(first)["state"] == "finished"
    assert read_status(second)["state"] == "running"
    before = (first / "metrics.jsonl").stat().st_mtime_ns

    again = start_sweep(tmp_path, *arguments, "--skip-done")
    output, _ = again.communicate(timeout=200)
    assert again.returncode == 0, output
    assert "sokoban_kl_sweep_nofilter_0-tiny: done before, step 8 of 8" in output
    assert (first / "metrics.jsonl").stat().st_mtime_ns == before
    assert [record["step"] for record in read_metrics(second)] == list(range(9))
    log = (tmp_path / "logs/kl_sweep_tiny/nofilter/001/sokoban_kl_sweep_nofilter_001-tiny.log").read_text()
    assert log.count("Memory: ") == 2, "the second part follows the first"
    resumed_at = log.rindex("Memory: ")
    assert "  step 1/" not in log[resumed_at:], "it resumed, and did not start over"
    block = (tmp_path / "logs/kl_sweep_tiny.log").read_text().partition("=== Summary ===\n")[2]
    assert [fields_of(line)["status"] for line in block.splitlines()] == ["success", "success"]

    # Another learning rate is another experiment, and there is a checkpoint to resume from.
    other = start_sweep(tmp_path, *arguments, "--skip-done", "actor_rollout_ref.actor.optim.lr=1e-3")
    output, _ = other.communicate(timeout=60)
    assert other.returncode == 1 and "optim.lr: 1e-06 -> 0.001" in output


def test_a_terminated_sweep_ends_its_runs_and_says_how_to_go_on(tmp_path):
    arguments = ["kl", "--kl-values", "0,0.01", "--steps", "500", *SMALL]
    run = tmp_path / "model_saving/kl_sweep_tiny/0/sokoban_kl_sweep_nofilter_0-tiny"
    sweep = start_sweep(tmp_path, *arguments)
    wait_for(lambda: (run / "metrics.jsonl").exists() or sweep.poll() is not None, "a first step")
    sweep.send_signal(signal.SIGTERM)
    output, _ = sweep.communicate(timeout=60)
    assert sweep.returncode == 128 + signal.SIGTERM
    assert not processes_in(tmp_path)
    assert read_status(run)["state"] == "interrupted"
    assert "Interrupted by SIGTERM: no run is left behind, and `ragen sweep kl --kl-values 0,0.01" in output
    assert output.strip().endswith("--skip-done` resumes.")
    block = (tmp_path / "logs/kl_sweep_tiny.log").read_text().partition("=== Summary ===\n")[2]
    assert [fields_of(line)["status"] for line in block.splitlines()] == ["missing", "missing"]


def test_a_step_of_the_training_helper_can_be_probed(capsys):
    small = [word for word in SMALL if "gradient_analysis_mode" not in word and "test_freq" not in word]
    small += ["trainer.gradient_analysis_env_groups=6", "trainer.gradient_analysis_group_size=4"]
    # The filter keeps 0.9 of the reward deviation, which must fill a mini batch.
    small += ["es_manager.train.env_groups=4", "actor_rollout_ref.actor.optim.lr=1e-3"]
    arguments = ["grad-analysis", "--steps", "3", *small, "trainer.gradient_analysis_every=2"]
    assert main(arguments) == 0
    name = "sokoban-PPO-filter-topp09-tiny-train8x16-analysis128x16-grad-every50"
    trained = Path("model_saving/gradient_analysis/sokoban/PPO/filter") / name
    steps = {record["step"]: record for record in read_metrics(trained)}
    assert sorted(folder.name for folder in trained.glob("global_step_*")) == ["global_step_1", "global_step_3"]
    assert [step for step, record in steps.items() if "grad_norm/all/task" in record] == [1, 3]
    assert steps[1]["grad_analysis/source_batch_size"] == 24.0
    assert steps[1]["grad_norm/all/kl"] == 0.0, "the training helper has no KL"
    assert "  step 3/" in Path(f"logs/gradient_analysis_sokoban_tiny/{name}.log").read_text()
    result = Path(f"logs/gradient_analysis_sokoban_tiny/{name}.result").read_text()
    assert fields_of(result.strip())["status"] == "success"

    ended = read_status(trained)["updated_at"]
    assert main(arguments) == 0, "the same command on a finished run ends at once"
    assert read_status(trained)["updated_at"] == ended
    assert "is finished: step 3 of 3" in Path(f"logs/gradient_analysis_sokoban_tiny/{name}.log").read_text()
    with pytest.raises(ConfigError, match="There are: global_step_1, global_step_3"):
        main(["probe-ckpt", *small])

    assert main(["probe-ckpt", "--checkpoint-step", "3", "--with-val", *small]) == 0
    name = "sokoban-PPO-filter-topp09-tiny-probe-ckpt3-withval-kl_and_entropy"
    probe = Path("model_saving/gradient_analysis_probe/sokoban/PPO/filter") / name
    [record] = read_metrics(probe)
    assert record["step"] == 3 and record["trainer/exited_after_gradient_analysis"] == 1.0
    assert record["grad_norm/all/kl"] > 0 and record["grad_norm/all/entropy"] > 0, "what the probe is for"
    assert "val-env/Bandit/success" in record
    assert not list(probe.glob("global_step_*")), "a probe saves nothing"
    assert Path(f"logs/gradient_analysis_probe_sokoban_tiny/{name}.log").exists()
    capsys.readouterr()
    assert main(["probe-ckpt", "--checkpoint-step", "3", "--with-val", "--skip-done", *small]) == 0
    assert f"{name}: done before, step 3 of 3" in capsys.readouterr().out

    # The smoke test of the documentation, in the same folder: another run, and nothing is lost.
    quick = [word for word in small if "env_groups=6" not in word and "group_size=4" not in word]
    assert main(["grad-analysis", "--steps", "1", *quick, "trainer.gradient_analysis_mode=False"]) == 0
    assert [record["step"] for record in read_metrics(trained)] == [0, 1]
    [aside] = trained.parent.glob(f"{trained.name}.20*")
    assert f"Moved what an earlier run left in {trained} to {aside}.\n" in capsys.readouterr().out
    assert [record["step"] for record in read_metrics(aside)] == [0, 1, 2, 3]
    assert sorted(folder.name for folder in aside.glob("global_step_*")) == ["global_step_1", "global_step_3"]
