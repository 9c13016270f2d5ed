"""What came out is kept, and read back as it was."""

import json
import math

import pytest

from ragen.algorithms.statistics import Estimate
from ragen.errors import RagenError
from ragen.reproduce.claim import Arm, Finding, Point
from ragen.reproduce.claims import CLAIMS
from ragen.reproduce.plan import key_of
from ragen.reproduce.records import make_record, read_record, read_records, record_path, write_record
from tests.reproduce.evidence import evidence, successes

COMMIT = "1f0c9a3e" + 32 * "0"
ARM = Arm(config_name="quickstart", seconds=1)
FINDING = Finding(
    verdict="cannot tell",
    ours="a fall of 0.2",
    points=(
        Point(label="best", ours=Estimate(0.5, 0.4, 0.6), published=0.21),
        Point(label="final", ours=Estimate(0.3, math.nan, math.nan)),
    ),
    seeds_needed=7,
)


def a_record(tmp_path):
    found = evidence(tmp_path / "runs", {"no filter": successes(0.4, 0.6)}, num_seeds=3)
    for folder, version, commit in zip(found.folders("no filter"), ("0.1.0", "0.1.0", "0.2.0"), (COMMIT, COMMIT, None)):
        card = {"machine": {"usable_cores": 2, "processor": "AMD EPYC", "gpus": []}}
        card["versions"] = {"ragen": version, "commit": commit}
        (folder / "card.json").write_text(json.dumps(card))
    return make_record(CLAIMS["C29"], "minutes", found, FINDING, arms={"no filter": ARM}, command="ragen reproduce C29")


def test_a_record_is_read_back_as_it_was(tmp_path):
    record = a_record(tmp_path)
    path = write_record(tmp_path / "records", record)
    assert path.name == "C29.minutes.json"
    again = read_record(path)
    assert again.finding.points[0] == FINDING.points[0] and math.isnan(again.finding.points[1].ours.low)
    assert (again.finding.verdict, again.finding.seeds_needed) == ("cannot tell", 7)
    assert again.arms == record.arms
    assert read_records(tmp_path / "records").keys() == {("C29", "minutes")}
    assert read_records(tmp_path / "nothing") == {}


def test_a_record_says_where_it_comes_from(tmp_path):
    record = a_record(tmp_path)
    assert (record.num_seeds, record.command) == (3, "ragen reproduce C29")
    assert (record.machine, record.version) == ("2 cores, AMD EPYC", "0.1.0 (1f0c9a3e) and 0.2.0")
    assert record.arms["no filter"] == {
        "runs": key_of(ARM),
        "seconds": [60, 60, 60],
        "final": [0.58, 0.59, 0.6],
        "best": [0.58, 0.59, 0.6],
        "area": [0.48, 0.49, 0.5],
    }


def test_files_are_in_the_order_of_the_claims(tmp_path):
    assert record_path(tmp_path, "C5", "hour").name == "C05.hour.json"


def test_a_damaged_record_is_named(tmp_path):
    path = write_record(tmp_path, a_record(tmp_path))
    path.write_text(path.read_text().replace('"label": "best"', '"lable": "best"'))
    with pytest.raises(RagenError, match=r"C29.minutes.json: a point has no 'label'"):
        read_record(path)
