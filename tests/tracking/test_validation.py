"""Validation success from a row of metrics."""

import json
import math

import pytest

from ragen.algorithms.statistics import Estimate
from ragen.config import load_config
from ragen.config.show import to_yaml
from ragen.tracking.names import GREEDY_VALIDATION
from ragen.tracking.rundir import RunDir
from ragen.tracking.validation import (
    ValidationSet,
    mean_success,
    read_references,
    read_validation,
    success_by_tag,
)

ROW = {
    "step": 10,
    "val-env/A/success": 0.5,
    "val-env/A/success_low": 0.375,
    "val-env/A/success_high": 0.625,
    "val-env/A/non-zero/success": 1.0,
    "val-env/A/success_unseen": 0.25,
    "val-env/A/success_unseen_low": 0.125,
    "val-env/A/success_unseen_high": 0.375,
    "val-env/A/levels_unseen": 48.0,
    "val-env/A/levels_seen": 16.0,
    "val-env-greedy/A/success": 0.75,
}


def test_success_has_its_interval_and_the_unseen_levels():
    found = success_by_tag(ROW)
    assert list(found) == ["A"]
    assert found["A"].success == Estimate(0.5, 0.375, 0.625)
    assert found["A"].unseen == Estimate(0.25, 0.125, 0.375)
    assert (found["A"].num_unseen, found["A"].num_seen, found["A"].is_mixed) == (48, 16, True)


def test_a_row_without_intervals_gets_those_of_its_levels():
    greedy = success_by_tag(ROW, {"A": 64}, rollout=GREEDY_VALIDATION)["A"]
    assert (greedy.success.low, greedy.success.high) == pytest.approx((0.6318, 0.8398), abs=1e-4)  # Wilson, 48 in 64
    assert (greedy.unseen, greedy.is_mixed) == (None, False)
    assert math.isnan(success_by_tag(ROW, rollout=GREEDY_VALIDATION)["A"].success.low)


def test_the_mean_is_over_the_tags():
    assert mean_success({"val-env/A/success": 0.25, "val-env/B/success": 0.75}).mean == 0.5
    assert mean_success({"train/A/success": 0.25}) is None


def test_the_levels_of_a_run_stand_in_its_configuration(tmp_path):
    assert read_validation(tmp_path) == ValidationSet({}, 1)
    RunDir(tmp_path).write_config(to_yaml(load_config("quickstart", ["es_manager.val.env_groups=64"])))
    assert read_validation(tmp_path) == ValidationSet({"FrozenLake": 64}, 1)


def test_the_references_come_from_the_preflight_or_from_a_file_of_former_runs(tmp_path):
    assert read_references(tmp_path) == {}
    (tmp_path / "references.json").write_text('{"A": {"random policy": 0.25, "solver": 1.0}}')
    assert read_references(tmp_path) == {"A": {"random": 0.25, "solver": 1.0}}
    policies = {"silent": {"success": 0.0}, "random": {"success": 0.5}, "solver": {"success": 1}}
    tags = {"A": {"policies": policies}, "B": {"policies": {"random": {"success": "x"}, "solver": 3}}, "C": []}
    (tmp_path / "preflight.json").write_text(json.dumps({"tags": tags}))
    assert read_references(tmp_path) == {"A": {"random": 0.5, "solver": 1.0}, "B": {}, "C": {}}
