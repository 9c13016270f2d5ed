"""`ragen reproduce`, as it is typed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ragen.cli.reproduce import main
from ragen.errors import ConfigError
from ragen.reproduce.claims import CLAIMS
from ragen.reproduce.command import chosen_claims
from ragen.reproduce.plan import plan_jobs
from ragen.reproduce.records import read_record
from ragen.tracking.rundir import RunDir, write_atomic

ROOT = Path(__file__).parents[2]
TINY = (
    "trainer.gradient_analysis_env_groups=12",
    "trainer.gradient_analysis_group_size=4",
    "es_manager.train.env_groups=4",
    "es_manager.train.group_size=2",
    "ppo_mini_batch_size=8",
)
CARD = {"machine": {"usable_cores": 2, "processor": "X", "gpus": []}, "versions": {"ragen": "1", "commit": None}}


def test_the_list_names_every_claim_with_its_number_and_budgets(tmp_path, capsys):
    assert main(["--list", "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    for claim in CLAIMS.values():
        assert f"{claim.name:<4} {claim.sentence}\n     {claim.source}. Published: {claim.published}\n" in text
    assert text.count("minutes: not testable") == 5
    assert "minutes: not run; hour: not run; day: not run" in text


def test_a_claim_is_named_in_any_way():
    assert [claim.name for claim in chosen_claims(["c05", "C5", "6"])] == ["C5", "C6"]
    assert len(chosen_claims(["all"])) == len(CLAIMS)
    with pytest.raises(ConfigError, match=r"'C99' is not a claim\..*--list"):
        chosen_claims(["C99"])


def test_a_word_is_needed():
    with pytest.raises(ConfigError, match="Which claim"):
        main([])


def test_a_plan_starts_nothing(tmp_path, capsys):
    assert main(["C5", "C7", "--plan", "--seeds", "2", "--out", str(tmp_path / "out")]) == 0
    text = capsys.readouterr().out
    assert "C7: not testable at `minutes`" in text
    assert "C5 at `minutes` (two CPU cores, embedded models): 8 of 8 runs to do, 640 steps" in text
    assert not (tmp_path / "out").exists()


def test_a_day_is_planned_where_there_is_no_hardware(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert main(["C5", "--budget", "day", "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "4 of 4 runs to do, 1600 steps; about 4 h 0 min one after another" in text
    assert "about 48.0 GB of disk" in text and "Nothing was run: `day` needs a GPU" in text


def test_a_report_judges_the_seeds_that_have_ended_and_starts_nothing(tmp_path, capsys):
    claim, out = CLAIMS["C29"], tmp_path / "out"
    (job,) = plan_jobs([claim], "minutes", num_seeds=5, out=out, changes={})
    assert main(["C29", "--report", "--out", str(out)]) == 0
    assert "C29: nothing to report, no seed has ended in every arm." in capsys.readouterr().out
    for run in job.runs["no filter"][:3]:
        run.begin("")
        folder = RunDir(run.run_dir)
        for step, success in ((0, 0.4), (10, 0.8), (20, 0.1 + 0.01 * run.seed)):
            folder.log(step, {"val-env/FrozenLake/success": success})
        card = {
            "machine": {"usable_cores": 2, "processor": "X", "gpus": []},
            "versions": {"ragen": "1", "commit": None},
        }
        write_atomic(run.run_dir / "card.json", json.dumps(card))
        folder.write_status("finished", step=20)
    assert main(["C29", "--report", "--out", str(out)]) == 0
    assert "2 of 5 runs to do" in (text := capsys.readouterr().out) and "**minutes: holds.**" in text
    assert read_record(out / "records" / "C29.minutes.json").num_seeds == 3


def test_a_wrong_override_is_an_error_before_anything_starts(tmp_path):
    with pytest.raises(ConfigError, match="totl_steps"):
        main(["C5", "trainer.totl_steps=3", "--out", str(tmp_path)])


def reproduce(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "ragen.cli", "reproduce", "C22", "--slots", "1", "--out", "out", *words, *TINY],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_a_claim_is_run_judged_kept_and_not_run_again(tmp_path):
    first = reproduce(tmp_path, "--seeds", "1")
    text = first.communicate()[0]
    assert first.returncode == 0, text
    assert "1 of 1 runs to do" in text and "**minutes: holds.**" in text
    record = read_record(tmp_path / "out" / "records" / "C22.minutes.json")
    assert record.finding.verdict == "holds" and record.num_seeds == 1
    assert (tmp_path / "out" / "records" / "C22.minutes.png").exists()
    (metrics,) = (tmp_path / "out" / "runs").glob("*/metrics.jsonl")
    written = metrics.stat().st_mtime_ns
    second = reproduce(tmp_path, "--seeds", "1")
    again = second.communicate()[0]
    assert "0 of 1 runs to do" in again and "**minutes: holds.**" in again
    assert metrics.stat().st_mtime_ns == written


@pytest.mark.slow
def test_a_killed_command_resumes_with_what_is_missing(tmp_path):
    killed = reproduce(tmp_path, "--seeds", "2")
    done = tmp_path / "out" / "logs"
    while killed.poll() is None and not list(done.glob("*-1.result.json")):
        time.sleep(0.2)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    resumed = reproduce(tmp_path, "--seeds", "2")
    text = resumed.communicate()[0]
    assert resumed.returncode == 0, text
    assert "1 of 2 runs to do" in text and "**minutes: holds.**" in text
