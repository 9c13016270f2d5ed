"""Sweeps, studies and searches in the form of the API, from the records that their driver writes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from ragen.algorithms.statistics import Estimate, over_seeds, proportion_interval
from ragen.studies.comparison import paired_difference
from ragen.studies.conditions import Condition, Curve
from ragen.studies.outcomes import Outcome
from ragen.sweeps.base_study import plan
from ragen.sweeps.driving.results import fields_of, write_result
from ragen.sweeps.driving.run import Run
from ragen.tracking.console import markdown_table
from ragen.tracking.rundir import RunDir
from ragen.view.reading.sweeps import sort_key

LEVELS = 100


def write_swept(run: Run, successes: tuple[float, ...], outcome: Outcome | None, *, val_seed: int = 1) -> None:
    """What a driver and its run leave; without an outcome the run is at work."""
    folder = RunDir(run.run_dir)
    tags = f"{{group_size: 1, env_configs: {{tags: [A], n_groups: [{LEVELS}]}}}}"
    folder.write_config(f"seed: {{val: {val_seed}}}\nes_manager: {{val: {tags}}}")
    for step, success in enumerate(successes):
        folder.log(step, {"val-env/A/success": success})
    folder.write_status("finished" if outcome else "running")
    run.begin("")
    if outcome:
        write_result(run, outcome)


def swept(root: Path, value: str, seed: int, *, fields: Mapping[str, str] | None = None) -> Run:
    name = f"kl-{value}" + (f"-seed{seed}" if seed > 1 else "")
    return Run(
        name=name,
        command=("x", f"trainer.default_local_dir=model_saving/{name}"),
        log=root / "logs" / "kl_sweep" / value / f"{name}.log",
        run_dir=root / "model_saving" / name,
        total_steps=2,
        value=value,
        seed=seed,
        fields=fields or {"kl": value, "filter": "none"},
    )


def success(run: Run, **changes: Any) -> Outcome:
    return Outcome(**({"status": "success", "fields": fields_of(run), "wall_time": 3.0, "device": "1xCPU"} | changes))


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Values 0 and 0.01 with two seeds each; 0.1 stopped early once and failed once; 1 is at work."""
    root = tmp_path / "runs"
    for value, finals in (("0", (0.5, 0.6)), ("0.01", (0.7, 0.9))):
        for seed, final in enumerate(finals, start=1):
            run = swept(root, value, seed)
            write_swept(run, (0.2, final), success(run))
    early, bad, waiting = swept(root, "0.1", 1), swept(root, "0.1", 2), swept(root, "1", 1)
    write_swept(
        early,
        (0.2, 0.1),
        success(early, status="early_stopped", early_stop="reward_variance_collapse", cause="all fail"),
    )
    write_swept(bad, (), success(bad, status="fail", last_lines=("<b>no memory</b>",)))
    write_swept(waiting, (0.2,), None)
    (root / "logs" / "kl_sweep.log").touch()
    (root / "logs" / "kl_sweep_report.md").write_text("# KL sweep")
    return root


def get(client, sweep_id: str) -> dict[str, Any]:
    return client.get(f"/api/sweeps/{quote(sweep_id, safe='')}").json()


def test_the_list_counts_how_runs_ended(client, sweep):
    (found,) = client.get("/api/sweeps").json()["sweeps"]
    counts = {key: value for key, value in found.items() if key.startswith("num_")}
    assert (found["id"], found["name"]) == ("0/logs/kl_sweep", "kl_sweep")
    assert counts == {"num_runs": 7, "num_ended": 6, "num_failed": 1, "num_early_stopped": 1}


def test_a_point_has_every_seed_and_students_interval(client, sweep):
    found = get(client, "0/logs/kl_sweep")
    assert [point["value"] for point in found["points"]] == ["kl=0", "kl=0.01", "kl=0.1"]
    point = found["points"][1]
    validations = [proportion_interval(70, LEVELS), proportion_interval(90, LEVELS)]
    expected = over_seeds(validations, share_levels=True).as_share()
    assert point["final"] == pytest.approx({"mean": 0.8, "low": expected.low, "high": expected.high})
    assert [(run["seed"], run["final"]["mean"], run["run_id"]) for run in point["runs"]] == [
        (1, 0.7, "0/model_saving/kl-0.01"),
        (2, 0.9, "0/model_saving/kl-0.01-seed2"),
    ]
    assert "Student's t over 2 seeds and the validation levels they share" in found["interval"]
    assert found["report"] == "# KL sweep"


def test_failed_regimes_and_runs_are_marked(client, sweep):
    found = get(client, "0/logs/kl_sweep")
    marks = [(point["num_collapsed"], point["has_failed_runs"]) for point in found["points"]]
    assert marks == [(0, False), (0, False), (1, True)]
    assert found["points"][2]["final"] is None, "the mean is that of the runs that did not collapse"
    assert found["points"][2]["collapse"]["mean"] == 1
    early, bad = found["points"][2]["runs"]
    assert (early["final"]["mean"], early["counts"], early["stop"]) == (0.1, True, "reward_variance_collapse: all fail")
    assert (bad["status"], bad["counts"], bad["last_lines"]) == ("fail", False, ["<b>no memory</b>"])
    assert [(run["name"], run["run_id"]) for run in found["waiting"]] == [("kl-1", "0/model_saving/kl-1")]


def test_differences_are_taken_seed_by_seed(client, sweep):
    found = get(client, "0/logs/kl_sweep")["differences"]
    assert found[1][0]["mean"] == pytest.approx(0.25)  # (0.7 - 0.5 + 0.9 - 0.6) / 2
    assert found[0][1]["mean"] == pytest.approx(-0.25)
    assert found[1][0]["low"] < found[1][0]["mean"] < found[1][0]["high"]
    assert found[0][2] is None, "the only run of the other collapsed"

    def condition(**finals: float) -> Condition:
        exact = {int(seed[1:]): Estimate(value, value, value) for seed, value in finals.items()}
        curves = [
            Curve(run=swept(sweep, "0", seed), outcome=Outcome(status="success"), steps=[1], estimates=[each],
                  num_episodes=1, num_levels=1)
            for seed, each in exact.items()
        ]  # fmt: skip
        return Condition(value="x", curves=curves)

    # Differences 0.1 and 0.3: their mean, and 12.706 * 0.1 to both sides.
    gap = paired_difference(condition(s1=0.5, s2=0.7), condition(s1=0.4, s2=0.4, s3=0.9))
    assert gap and (gap.mean, gap.low, gap.high) == pytest.approx((0.2, 0.2 - 1.2706, 0.2 + 1.2706))
    assert paired_difference(condition(s1=1.0), condition(s2=1.0)) is None


def test_a_study_is_shown_by_arm_with_levels_of_its_own(client, tmp_path):
    out = tmp_path / "runs" / "study"
    for (name, way, _, seed), run in plan(out, (1, 2), ()).items():
        if (name, way) == ("frozen_lake", "think"):
            write_swept(run, (0.2, 0.5 + seed / 10), Outcome(status="success", fields=fields_of(run)), val_seed=seed)
    found = get(client, "0/study")
    assert [point["value"] for point in found["points"]] == ["frozen_lake-think-rl", "frozen_lake-think-sft"]
    assert [run["seed"] for run in found["points"][0]["runs"]] == [1, 2]
    assert found["points"][0]["runs"][0]["run_id"] == "0/study/frozen_lake-think-rl-1/run"
    finals = [proportion_interval(60, LEVELS), proportion_interval(70, LEVELS)]
    expected = over_seeds(finals, share_levels=False).as_share()
    assert found["points"][0]["final"]["low"] == pytest.approx(expected.low)
    assert "Student's t over 2 seeds, at least their own error" in found["interval"]


def test_a_search_is_shown_by_the_parameters_that_differ(client, tmp_path):
    for rate, batch in (("1e-6", "8"), ("5e-7", "8")):
        fields = {"actor_lr": rate, "train_batch_size": batch}
        run = swept(tmp_path / "runs", rate, 1, fields=fields)
        write_swept(run, (0.2, 0.5), success(run, fields=fields | {"score": "0.5000"}))
    (tmp_path / "runs" / "logs" / "kl_sweep.log").touch()
    found = get(client, "0/logs/kl_sweep")
    assert [point["value"] for point in found["points"]] == ["actor_lr=5e-7", "actor_lr=1e-6"]
    assert found["points"][0]["runs"][0]["score"] == "0.5000"


def test_a_table_of_scaling_leads_to_its_runs(client, tmp_path):
    write_swept(swept(tmp_path / "runs", "0", 1), (0.5,), None)
    table = markdown_table(["model", "run"], [["tiny", "kl-0"], ["constructor", "elsewhere"]])
    (tmp_path / "runs" / "scaling.md").write_text(table + "\n")
    found = get(client, "0/scaling.md")["table"]
    assert (found["rows"][0], found["runs"]) == (["tiny", "kl-0"], {"kl-0": "0/model_saving/kl-0"})


def test_runs_that_are_not_shown_or_cannot_be_read_have_no_numbers(client, sweep):
    (sweep / "model_saving" / "kl-0" / "metrics.jsonl").write_text('{"step": "x"}\n')
    (sweep / "model_saving" / "kl-0-seed2").rename(sweep.parent / "elsewhere")
    first, second = get(client, "0/logs/kl_sweep")["points"][0]["runs"]
    assert (first["final"], first["run_id"]) == (None, "0/model_saving/kl-0")
    assert (second["final"], second["run_id"]) == (None, None)


@pytest.mark.parametrize("sweep_id", ["0/nope", "", "../../etc", "0/logs/kl_sweep/../kl_sweep"])
def test_what_is_no_sweep_is_a_sentence(client, sweep, sweep_id):
    answer = client.get(f"/api/sweeps/{quote(sweep_id, safe='')}")
    assert answer.status_code == 404 and set(answer.json()) == {"error"}


def test_values_are_sorted_as_numbers():
    values = ["kl=1", "kl=0.01", "kl=none", "kl=1e-3", "kl=0"]
    assert sorted(values, key=sort_key) == ["kl=0", "kl=1e-3", "kl=0.01", "kl=1", "kl=none"]
