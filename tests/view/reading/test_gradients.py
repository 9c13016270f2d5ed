"""Gradient analyses through the API."""

from ragen.tracking.rundir import RunDir
from tests.view.runs import write_run

PATH = "/api/runs/0%2Fa/gradients"


def test_buckets_step_by_step(client, tmp_path):
    run = RunDir(write_run(tmp_path / "runs" / "a"))
    row = {"grad_norm/all/task": 0.5, "grad_norm/bucket_10/task": 3.0, "grad_norm/bucket_2/norm_low/task": float("nan")}
    run.log(2, row)
    run.log(3, {"grad_norm_prefilter/bucket_1/kl": 1.0, "actor/grad_norm": 2.0})
    found = client.get(PATH).json()
    assert found["components"] == ["task", "entropy", "kl"]
    assert found["analyses"]["grad_norm"] == [
        {"step": 2, "buckets": {"all": {"task": 0.5}, "bucket_2": {"norm_low/task": None}, "bucket_10": {"task": 3.0}}}
    ]
    assert [each["step"] for each in found["analyses"]["grad_norm_prefilter"]] == [3]


def test_a_run_without_analyses_has_none(client, tmp_path):
    write_run(tmp_path / "runs" / "a")
    assert client.get(PATH).json()["analyses"] == {"grad_norm": [], "grad_norm_prefilter": []}
