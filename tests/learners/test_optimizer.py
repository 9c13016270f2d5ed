"""AdamW with master weights, by hand and against torch's own."""

import gc
import math
import weakref

import pytest
import torch
from safetensors.torch import save_file

from ragen.config.actor_rollout_ref import OptimConfig
from ragen.errors import FileError
from ragen.learners.optimizer import Optimizer, learning_rate


def optim(**changes) -> OptimConfig:
    values = {
        "lr": 1.0,
        "betas": (0.9, 0.999),
        "weight_decay": 0.0,
        "lr_warmup_steps": -1,
        "lr_warmup_steps_ratio": 0.0,
        "lr_scheduler_type": "constant",
        "min_lr_ratio": 0.0,
        "num_cycles": 0.5,
    }
    return OptimConfig(**(values | changes))


def test_a_warm_up_rises_from_zero_and_ends():
    config = optim(lr_warmup_steps=4)
    assert [learning_rate(config, step, 10) for step in (1, 2, 4, 5, 10)] == [0.25, 0.5, 1, 1, 1]


def test_a_warm_up_may_be_a_share_of_all_steps():
    assert learning_rate(optim(lr_warmup_steps_ratio=0.2), 1, 10) == 0.5


def test_a_cosine_falls_to_its_floor():
    config = optim(lr_scheduler_type="cosine", min_lr_ratio=0.1)
    assert learning_rate(config, 5, 10) == pytest.approx(0.55)
    assert learning_rate(config, 10, 10) == pytest.approx(0.1)


def model_of(dtype: torch.dtype) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Linear(4, 3).to(dtype)


def test_float32_steps_equal_torch():
    ours, theirs = model_of(torch.float32), model_of(torch.float32)
    optimizer = Optimizer(ours, optim(lr=1e-2, weight_decay=0.1), grad_clip=1e9, total_steps=5)
    adam = torch.optim.AdamW(theirs.parameters(), lr=1e-2, weight_decay=0.1)
    for step in range(1, 4):
        for model in (ours, theirs):
            model(torch.ones(2, 4)).square().sum().backward()
        optimizer.step(step)
        adam.step()
        adam.zero_grad()
    torch.testing.assert_close(ours.weight, theirs.weight)


def test_steps_too_small_for_bfloat16_are_not_lost():
    model = model_of(torch.bfloat16)
    before = model.weight.detach().clone()
    optimizer = Optimizer(model, optim(lr=1e-5), grad_clip=1e9, total_steps=1000)
    for step in range(1, 301):
        model(torch.ones(1, 4, dtype=torch.bfloat16)).sum().backward()
        optimizer.step(step)
    # Each step moves a weight by 1e-5, far below the resolution of bfloat16; 300 of them by 3e-3.
    assert (before.float() - optimizer.masters["weight"]).mean().item() == pytest.approx(3e-3, rel=0.2)
    assert (model.weight != before).any()


def test_gradients_of_micro_batches_are_summed_in_float32():
    model = model_of(torch.bfloat16)
    optimizer = Optimizer(model, optim(), grad_clip=1e9, total_steps=1)
    for _ in range(512):
        (model(torch.ones(1, 4, dtype=torch.bfloat16)).sum() * 2**-8).backward()
    # In bfloat16 the sum would stop growing at 1, where 2**-8 no longer changes it.
    assert optimizer.masters["bias"].grad.tolist() == [2.0, 2.0, 2.0]


def test_moments_are_missing_until_the_first_step():
    model = model_of(torch.bfloat16)
    optimizer = Optimizer(model, optim(), grad_clip=1.0, total_steps=1)
    assert optimizer.num_missing_bytes() == (4 * 3 + 3) * 2 * 4, "two numbers in float32 for each weight"
    model(torch.ones(1, 4, dtype=torch.bfloat16)).sum().backward()
    optimizer.step(1)
    assert optimizer.num_missing_bytes() == 0


def test_a_gradient_that_is_not_finite_skips_the_step():
    model = model_of(torch.float32)
    before = model.weight.detach().clone()
    optimizer = Optimizer(model, optim(), grad_clip=1.0, total_steps=1)
    (model(torch.ones(1, 4)).sum() * float("inf")).backward()
    assert not math.isfinite(optimizer.step(1))
    assert torch.equal(model.weight, before)
    assert model.weight.grad is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_loaded_state_continues_bit_by_bit(dtype):
    def train(model, optimizer, steps):
        for step in steps:
            model(torch.ones(2, 4, dtype=dtype)).square().sum().backward()
            optimizer.step(step)

    straight = model_of(dtype)
    straight_optimizer = Optimizer(straight, optim(lr=1e-2), grad_clip=1.0, total_steps=9)
    train(straight, straight_optimizer, range(1, 6))

    first = model_of(dtype)
    first_optimizer = Optimizer(first, optim(lr=1e-2), grad_clip=1.0, total_steps=9)
    train(first, first_optimizer, range(1, 4))
    second = model_of(dtype)
    second.load_state_dict(first.state_dict())
    second_optimizer = Optimizer(second, optim(lr=1e-2), grad_clip=1.0, total_steps=9)
    second_optimizer.load_state({name: tensor.clone() for name, tensor in first_optimizer.state().items()})
    train(second, second_optimizer, range(4, 6))
    assert torch.equal(second.weight, straight.weight)
    assert torch.equal(second_optimizer.masters["weight"], straight_optimizer.masters["weight"])


def test_moments_of_another_model_are_refused(tmp_path):
    model = model_of(torch.float32)
    optimizer = Optimizer(model, optim(), grad_clip=1.0, total_steps=9)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step(1)
    path, state = tmp_path / "optimizer.safetensors", optimizer.state()
    wrong = {
        "the moments of weight are not of its shape": state | {"weight.exp_avg": torch.zeros(7)},
        "holds other.exp_avg, which this model does not train": state | {"other.exp_avg": torch.zeros(7)},
    }
    for words, tensors in wrong.items():
        save_file(tensors, path)
        with pytest.raises(FileError, match=words):
            optimizer.load_file(path)
    save_file(state, path)
    optimizer.load_file(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FileError, match="was cut short"):
        optimizer.load_file(path)


def test_dropped_weights_and_masters_are_freed():
    model = model_of(torch.bfloat16)
    optimizer = Optimizer(model, optim(), grad_clip=1.0, total_steps=1)
    model(torch.ones(1, 4, dtype=torch.bfloat16)).sum().backward()
    optimizer.step(1)
    watched = [weakref.ref(tensor) for tensor in (optimizer, model.weight, optimizer.masters["weight"])]
    del model, optimizer
    gc.collect()
    assert [ref() for ref in watched] == [None] * 3
