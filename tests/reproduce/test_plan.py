"""From claims to runs: shared by configuration, checked before anything starts."""

from __future__ import annotations

import pytest

from ragen.config import load_config
from ragen.reproduce.arms import HOT_LAKE, LAKE, SOKOBAN, TAUGHT_SOKOBAN, slippery, top_k, top_p
from ragen.reproduce.claims import CLAIMS
from ragen.reproduce.plan import distinct_runs, find_slots, key_of, plan_jobs, plan_table, plan_text
from ragen.studies.outcomes import Outcome
from ragen.tracking.rundir import RunDir

ARMS = {
    f"{claim.name} {budget} {name}": arm
    for claim in CLAIMS.values()
    for budget, arms in claim.arms.items()
    for name, arm in arms.items()
}


def test_an_arm_is_changed_without_touching_the_other():
    other = LAKE.but({"a": "1"}, times=2)
    assert other.overrides["a"] == "1" and "a" not in LAKE.overrides
    assert other.seconds == 2 * LAKE.seconds and other.steps == LAKE.steps == 60


def test_equal_configurations_have_equal_names_however_they_were_made():
    assert key_of(LAKE) == key_of(LAKE.but({"trainer.total_training_steps": "60"})) == key_of(slippery(LAKE, 0))
    assert key_of(LAKE).startswith("quickstart-")
    names = [key_of(arm) for arm in (LAKE, HOT_LAKE, top_p(LAKE, 0.9), top_k(LAKE, 0.25), SOKOBAN, TAUGHT_SOKOBAN)]
    assert len(set(names)) == 6


def test_what_a_filter_keeps_is_one_update():
    assert LAKE.overrides["ppo_mini_batch_size"] == "64"
    assert top_p(LAKE, 0.9).overrides["ppo_mini_batch_size"] == "57"
    assert top_k(LAKE, 0.25).overrides["ppo_mini_batch_size"] == "16"


@pytest.mark.parametrize("key", sorted({key_of(arm) for arm in ARMS.values()}))
def test_every_arm_is_a_configuration_that_can_be_run(key):
    arm = next(arm for arm in ARMS.values() if key_of(arm) == key)
    config = load_config(arm.config_name, [f"{name}={value}" for name, value in arm.overrides.items()])
    assert config.trainer.total_training_steps == arm.steps
    assert config.trainer.early_stop.variance_window == 0, "a run that breaks counts to its end"
    assert arm.seconds > 0 and arm.gigabytes > 0


def test_minutes_are_hours_of_two_cores_in_all():
    arms = {key_of(arm): arm for name, arm in ARMS.items() if " minutes " in name}
    assert sum(arm.seconds for arm in arms.values()) * 5 / 2 < 4 * 3600
    assert all(arm.seconds < 240 for arm in arms.values())


def test_claims_share_runs(tmp_path):
    claims = [CLAIMS[name] for name in ("C4", "C5", "C29")]
    jobs = plan_jobs(claims, "minutes", num_seeds=2, out=tmp_path, changes={})
    runs = distinct_runs(jobs)
    assert len(runs) == 2 * 4, "the four arms of C5 hold those of the others"
    assert [run.seed for run in runs] == [1] * 4 + [2] * 4, "whole seeds first"
    assert jobs[0].runs["no filter"] == jobs[1].runs["no filter"] == jobs[2].runs["no filter"]
    first, second = jobs[0].runs["no filter"]
    assert first.config is not None and second.config is not None
    assert (first.config.seed.train, second.config.seed.train) == (2_000_000, 4_000_000)
    assert first.config.seed.val != second.config.seed.val
    assert f"seed.train={first.config.seed.train}" in first.command
    assert first.run_dir == tmp_path / "runs" / first.name


def test_changes_make_runs_of_their_own(tmp_path):
    plain, changed = (
        plan_jobs([CLAIMS["C4"]], "minutes", num_seeds=1, out=tmp_path, changes=changes)[0].runs["no filter"][0]
        for changes in ({}, {"trainer.total_training_steps": "3"})
    )
    assert plain.name != changed.name and changed.total_steps == 3


def test_a_run_on_demonstrations_starts_with_them(tmp_path):
    (run,) = plan_jobs([CLAIMS["C17"]], "minutes", num_seeds=1, out=tmp_path, changes={})[0].runs["SFT"]
    teach, train = run.command[-1].split(" && ")
    assert " sft --config-name quickstart_sokoban" in teach and " train --config-name quickstart_sokoban" in train
    assert f"sft.output_dir={run.run_dir}.sft" in teach and f"model_path={run.run_dir}.sft/merged_model" in train


def test_the_plan_says_runs_steps_time_and_disk(tmp_path):
    jobs = plan_jobs([CLAIMS["C29"], CLAIMS["C28"]], "minutes", num_seeds=2, out=tmp_path, changes={})
    slots = find_slots("minutes", num_cpu_slots=2, runs_per_gpu=1)
    text = plan_text(jobs, "minutes", slots)
    assert text.startswith("2 of 2 runs to do, 160 steps; about 3 min 15 s one after another, 1 min 38 s on 2 slots")
    assert text.endswith("about 0.0 GB of disk.")
    assert "3 min 15 s on 1 slot (" in plan_text(jobs, "minutes", slots[:1])
    table = plan_table(jobs, "minutes")
    assert table.count("\n") == 2 and "C29 (no filter), C28 (no filter)" in table


def test_embedded_models_stay_on_the_cpu(monkeypatch):
    slots = find_slots("minutes", num_cpu_slots=3, runs_per_gpu=2)
    assert [slot.devices for slot in slots] == ["", "", ""]
    for module in ("sweeps.driving.slots", "reproduce.plan"):
        monkeypatch.setattr(f"ragen.{module}.ask_nvidia_smi", lambda: {"0": "H200"})
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [slot.devices for slot in find_slots("hour", num_cpu_slots=3, runs_per_gpu=3)] == ["0", "0", "0"]


def test_evidence_is_what_the_runs_left(tmp_path):
    (job,) = plan_jobs([CLAIMS["C29"]], "minutes", num_seeds=3, out=tmp_path, changes={})
    runs = job.runs["no filter"]
    for run in runs[:2]:
        for step, success in ((0, 0.5), (10, 0.75)):
            RunDir(run.run_dir).log(step, {"val-env/FrozenLake/success": success})
    outcomes = {run.name: Outcome(status="success" if run.seed < 3 else "fail") for run in runs}
    found = job.evidence(outcomes)
    assert found.folders("no filter") == [run.run_dir for run in runs[:2]]
    assert [curve.final for curve in found.curves("no filter")] == [0.75, 0.75]
    assert job.complete_seeds(outcomes) == {1, 2}
    assert found.paired("no filter", "no filter", lambda curve: curve.final).estimate.mean == 0
