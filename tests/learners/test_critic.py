"""The critic: its values, and that it learns them."""

import copy
from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ragen.config import load_config
from ragen.learners.critic import Critic
from tests.learners.batches import SPLITS, random_batch, value_model


def test_a_critic_update_does_not_depend_on_the_micro_batches():
    results = []
    for split in ({"ppo_micro_batch_size_per_gpu": 7}, *SPLITS):
        config = replace(load_config("base", ["model_path=tiny"]).critic, ppo_mini_batch_size=3, **split)
        critic = Critic(value_model(), replace(config, optim=replace(config.optim, lr=1e-3)), total_steps=10)
        metrics = critic.update(random_batch(), step=1)
        results.append((metrics, torch.cat([p.detach().flatten() for p in critic.model.parameters()])))
    for metrics, weights in results[1:]:
        assert metrics == pytest.approx(results[0][0], rel=1e-3, abs=1e-5)
        torch.testing.assert_close(weights, results[0][1], atol=2e-4, rtol=1e-3)


def test_a_pass_fetches_its_numbers_at_once():
    """Each number that is fetched by itself waits for a GPU."""
    num_fetched = 0

    class Fetches(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal num_fetched
            num_fetched += func.overloadpacket is torch.ops.aten._local_scalar_dense and args[0].is_floating_point()
            return func(*args, **(kwargs or {}))

    critic = Critic(value_model(), load_config("base", ["model_path=tiny"]).critic, total_steps=1)
    batch = random_batch(2)
    batch.weights = batch.mean_weights = batch.mask / batch.mask.sum()
    for micro, packing in critic.passes(batch):
        with Fetches():
            _, metrics = critic.loss(micro, packing)
        assert set(metrics) == {"vf_clipfrac", "vpred_mean", "vf_loss"}
    assert num_fetched == 0


def test_values_are_those_of_the_state_before_each_token():
    batch, model = random_batch(2), value_model()
    critic = Critic(model, load_config("base", ["model_path=tiny"]).critic, total_steps=1)
    values = critic.values(batch)
    for row, ids in enumerate(batch.ids):
        with torch.no_grad():
            expected = model(torch.tensor([ids])).logits[0, :, 0]
        for t in range(1, len(ids)):
            wanted = expected[t - 1].item() if batch.mask[row, t] else 0.0
            assert values[row, t].item() == pytest.approx(wanted, abs=1e-4)


def test_a_critic_learns_its_returns():
    batch = random_batch(3)
    config = load_config("base", ["model_path=tiny"]).critic
    config = replace(config, ppo_mini_batch_size=3, cliprange_value=100.0, optim=replace(config.optim, lr=3e-3))
    critic = Critic(copy.deepcopy(value_model()), config, total_steps=100)
    losses = [critic.update(batch, step=step)["critic/vf_loss"] for step in range(1, 61)]
    assert losses[-1] < 0.2 * losses[0]
