"""Names are built and read back in one way."""

import ast
import re
from pathlib import Path

import pytest

from ragen.tracking import names

PACKAGE = Path(__file__).parents[2] / "ragen"


def test_a_prefix_is_added_and_taken_off():
    metrics = {"A/success": 0.5, "response_length": 7.0}
    row = names.with_prefix("train", metrics)
    assert row == {"train/A/success": 0.5, "train/response_length": 7.0}
    assert names.below("train", row | {"trainer/lr": 1.0, "step": 3}) == metrics


def test_a_metric_by_tag_is_not_one_of_its_kin():
    kin = ("non-zero/success", "success_unseen", "success_low")
    row = {"val-env/A/success": 0.5, "val-env-greedy/A/success": 0.75} | {f"val-env/A/{name}": 1.0 for name in kin}
    assert names.by_tag(row, names.VALIDATION, names.SUCCESS) == {"A": 0.5}
    assert names.by_tag(row, names.GREEDY_VALIDATION, names.SUCCESS) == {"A": 0.75}
    assert names.by_tag(row, names.TRAIN, names.SUCCESS) == {}


def test_success_on_unseen_levels_has_its_count_and_interval():
    assert [names.success_on(kind) for kind in names.NOVELTIES] == ["success_unseen", "success_seen"]
    assert names.num_levels(names.UNSEEN) == "levels_unseen"
    assert names.interval_ends(names.success_on(names.SEEN)) == ("success_seen_low", "success_seen_high")


def test_buckets_are_sorted_by_their_number():
    row = [f"grad_norm/bucket_{name}/task" for name in (10, 2, 1, "x")] + ["grad_norm/all/task"]
    row += ["grad_norm_prefilter/bucket_3/task"]
    assert names.numbered_buckets(row, names.GRADIENTS) == ["bucket_1", "bucket_2", "bucket_10"]
    assert names.numbered_buckets(row, names.PREFILTER_GRADIENTS) == ["bucket_3"]


def test_the_metrics_of_a_bucket_come_back_from_a_row():
    metrics = {"task": 2.0, names.of("norm_low", "task"): 1.5, names.of("cosine", names.pair("task", "kl")): 0.25}
    bucket = names.join(names.GRADIENTS, "bucket_1")
    row = names.with_prefix(bucket, metrics)
    assert list(row) == ["grad_norm/bucket_1/task", "grad_norm/bucket_1/norm_low/task", f"{bucket}/cosine/task_kl"]
    assert names.below(bucket, row | {"grad_norm/bucket_10/task": 3.0}) == metrics


def test_times_and_speeds_are_left_out():
    times = ("timing_s/gen", "timing_per_token_ms/gen", "perf/throughput", "sft/tokens_per_second")
    row = {"step": 3, "sft/lr": 1e-3} | dict.fromkeys(times, 1.0)
    assert names.without_times(row) == {"step": 3, "sft/lr": 1e-3}


SPELLED = r"(train|val-env(-greedy)?|timing_s|timing_per_token_ms|perf|grad_norm(_prefilter)?|collapse_\w+_sample)/"
"""A name that begins with a prefix of this module, written out."""
LOGGED_ONLY = {"train/rollout_attempts", "train/batch_size", "train/num_mini_batches"}


def texts(path: Path) -> set[str]:
    """The texts of a module, and the constant parts of its f-strings; sentences that stand alone are documentation."""
    tree = ast.parse(path.read_text())
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in alone)
    return {node.value for node in constants if isinstance(node.value, str)}


@pytest.mark.parametrize("room", ["diagnostics", "evaluation", "legacy", "plotting", "sweeps", "tracking", "trainer"])
def test_no_reader_spells_a_name(room):
    modules = [path for path in (PACKAGE / room).rglob("*.py") if path.name != "glossary.py"]
    found = {path.name: {text for text in texts(path) - LOGGED_ONLY if re.match(SPELLED, text)} for path in modules}
    assert {name: spelled for name, spelled in found.items() if spelled} == {}, "take them from ragen.tracking.names"
