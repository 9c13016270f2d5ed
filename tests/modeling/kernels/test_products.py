"""The products of few rows against those of the library."""

import pytest
import torch

from tests.modeling.kernels.interpreter import DEVICE, MARKS  # isort: skip  # chooses it

from ragen.modeling.kernels.norm import rms_norm_rows
from ragen.modeling.kernels.products import FEW, FewRows, ManyRows, SomeRows, Workshop, can_start_early

pytestmark = MARKS
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.01}
DTYPE = torch.bfloat16 if DEVICE == "cuda" else torch.float32
EPS = 1e-6


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(DEVICE, DTYPE)


def matrix(width: int, depth: int, seed: int) -> torch.Tensor:
    return drawn(width, depth, seed=seed) / depth**0.5


def assert_near(ours: torch.Tensor, exact: torch.Tensor) -> None:
    assert not ours.isnan().any()
    assert (ours.float() - exact).norm() < TOLERANCE[DTYPE] * exact.norm()


def normed(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(dim=1, keepdim=True) + EPS) * gain


SHAPES = {
    "one": (1, 72, 100, FewRows),
    "few": (3, 896, 9, FewRows),
    "two chunks": (FEW, 1500, 5, FewRows),
    "some": (5, 72, 100, SomeRows),
    "16": (16, 896, 20, SomeRows),
    "32": (32, 200, 40, SomeRows),
    "16, wide": (16, 2048, 12, SomeRows),
    "many": (33, 72, 40, ManyRows),
    "many, wide": (17, 2048, 8, ManyRows),
    "8, wider than shared memory": (8, 2560, 8, ManyRows),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_layer_with_two_norms_between_sums(shape):
    num_rows, hidden, width, form = SHAPES[shape]
    x, y = drawn(num_rows, hidden), drawn(num_rows, width, seed=1)
    gains, bias = [1 + 0.2 * drawn(hidden, seed=2 + i) for i in range(2)], drawn(width, seed=4)
    weight, gate_up, added = matrix(width, hidden, 5), matrix(2 * width, hidden, 6), matrix(hidden, width, 7)
    rows = Workshop(added).hidden(x.clone(), gains[0], EPS)
    assert type(rows) is form
    first = normed(x.float(), gains[0].float())
    assert_near(rows.normed(gains[0], weight, bias), first @ weight.float().t() + bias.float())
    assert_near(rows.normed(gains[0], weight, None), first @ weight.float().t())
    rows.add(y, added, next_gain=gains[1])
    assert_near(rows.x, x.float() + y.float() @ added.float().t())
    gate, up = (normed(rows.x.float(), gains[1].float()) @ gate_up.float().t()).chunk(2, dim=1)
    gated = rows.gated(gains[1], gate_up)
    assert_near(gated, torch.nn.functional.silu(gate) * up)
    rows.add(gated, added, next_gain=gains[0])
    assert_near(rows.normed(gains[0], weight, bias), (rms_norm_rows(rows.x, gains[0], EPS) @ weight.t() + bias).float())


def test_a_card_with_less_shared_memory_leaves_more_to_the_library():
    weight, gain = matrix(72, 40, 1), drawn(2048, seed=2)
    workshop = Workshop(weight)
    assert type(workshop.hidden(drawn(16, 2048), gain, EPS)) is SomeRows
    workshop.shared_memory = 99 * 1024  # of an RTX 4090
    assert type(workshop.hidden(drawn(16, 2048), gain, EPS)) is ManyRows
    assert type(workshop.hidden(drawn(16, 896), gain[:896], EPS)) is SomeRows
    deep = Workshop(matrix(72, 2048, 1))
    deep.shared_memory = 99 * 1024
    assert type(deep.hidden(drawn(32, 72), gain[:72], EPS)) is ManyRows


@pytest.mark.parametrize("num_rows", [3, 6, 40])
def test_large_states_stay_finite_in_float16(num_rows):
    x, gain = 3000 * drawn(num_rows, 64).half(), 30 * drawn(64, seed=1).half().abs()
    weight = matrix(40, 64, 2).half()
    exact = normed(x.float(), gain.float()) @ weight.float().t()
    ours = Workshop(weight.t().contiguous()).hidden(x, gain, EPS).normed(gain, weight, None)
    assert (ours.float() - exact).norm() < 0.01 * exact.norm()


@pytest.mark.parametrize("num_rows", [1, 3, 6, 32])
@pytest.mark.parametrize("depth", [96, 2100])
def test_a_deep_product_is_shared_by_programs_and_gives_the_same_bits_again(num_rows, depth):
    x, y, weight = drawn(num_rows, 72, seed=2), drawn(num_rows, depth), matrix(72, depth, 1)
    workshop, gain = Workshop(weight), drawn(72, seed=3)
    results = []
    for _ in range(3):
        rows = workshop.hidden(x.clone(), gain, EPS)
        rows.add(y, weight, next_gain=gain)
        results.append(rows.x)
    assert_near(results[0], x.float() + y.float() @ weight.float().t())
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])
    assert not workshop.counters.any()


@pytest.mark.parametrize("num_rows", [3, 6, 40])
def test_rows_that_are_kept_go_on_alone(num_rows):
    x, y, weight, gain = drawn(num_rows, 72), drawn(2, 40, seed=1), matrix(72, 40, 2), drawn(72, seed=3)
    rows = Workshop(weight).hidden(x.clone(), gain, EPS)
    rows.keep(torch.tensor([2, 0], device=DEVICE))
    rows.add(y, weight, next_gain=gain)
    assert_near(rows.x, x[[2, 0]].float() + y.float() @ weight.float().t())
    assert_near(rows.normed(gain, weight.t().contiguous(), None), normed(rows.x.float(), gain.float()) @ weight.float())


def test_only_nvidias_cards_from_hopper_on_start_kernels_early(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 4))  # an MI300 says the same
    monkeypatch.setattr(torch.version, "hip", None)
    assert can_start_early(torch.device("cuda"))
    assert not can_start_early(torch.device("cpu"))
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert not can_start_early(torch.device("cuda"))
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 9))
    assert not can_start_early(torch.device("cuda"))
