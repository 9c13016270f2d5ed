"""The prediction of step times: limits that can be told without a calculator."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from scaling import SHAPES, Load, Machine, memory_gib, predict

LOAD = Load(num_groups=64)


@pytest.mark.parametrize(("name", "billions"), [("0.5B", 0.49), ("3B", 3.1), ("7B", 7.6), ("32B", 32.8), ("70B", 72.7)])
def test_shapes_have_the_size_of_their_name(name, billions):
    assert SHAPES[name].num_parameters / 1e9 == pytest.approx(billions, rel=0.02)


@pytest.mark.parametrize("name", SHAPES)
def test_more_gpus_are_faster_and_never_more_than_their_number(name):
    times = {n: sum(predict(SHAPES[name], LOAD, Machine(), n).values()) for n in (1, 2, 8, 16, 64)}
    assert list(times.values()) == sorted(times.values(), reverse=True)
    assert all(times[1] / seconds <= n for n, seconds in times.items())


def test_one_gpu_moves_nothing_and_slow_networks_hold_up_updates():
    shape = SHAPES["7B"]
    assert predict(shape, LOAD, Machine(), 1)["gather"] == 0
    fast, slow = (predict(shape, LOAD, Machine(node_gb_s=speed), 16)["update"] for speed in (320, 12.5))
    assert slow > 1.5 * fast


def test_fewer_groups_than_gpus_leave_some_without_play():
    few = Load(num_groups=8)
    assert predict(SHAPES["3B"], few, Machine(), 8)["gen"] == predict(SHAPES["3B"], few, Machine(), 64)["gen"]


def test_gpus_share_all_but_the_policy():
    needs = [memory_gib(SHAPES["7B"], LOAD, count, Machine()) for count in (1, 8, 32)]
    assert needs == sorted(needs, reverse=True)
    assert needs[-1] > 2 * 7.6e9 / 2**30
