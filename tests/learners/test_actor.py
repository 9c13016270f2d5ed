"""The actor: what it computes does not depend on how the batch is split, and equals its formula."""

from dataclasses import replace

import pytest
import torch

from ragen.learners.actor import Actor, score_logprobs
from tests.engine.families import random_model
from tests.learners.batches import SPLITS, actor_config, random_batch


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"])
@pytest.mark.parametrize("policy_loss", ["ppo", "gspo", "cispo", "sapo"])
def test_an_actor_update_does_not_depend_on_the_micro_batches(mode, policy_loss):
    results = []
    for split in ({"ppo_micro_batch_size_per_gpu": 7}, *SPLITS):
        model = random_model("qwen2")
        config = actor_config(loss_agg_mode=mode, policy_loss=policy_loss, **split)
        config = replace(config, optim=replace(config.optim, lr=1e-3))
        actor = Actor(model, config, temperature=0.9, total_steps=10)
        metrics = actor.update(random_batch(), step=1)
        results.append((metrics, torch.cat([p.detach().flatten() for p in model.parameters()])))
    for metrics, weights in results[1:]:
        assert metrics == pytest.approx(results[0][0], rel=1e-3, abs=1e-5)
        torch.testing.assert_close(weights, results[0][1], atol=2e-4, rtol=1e-3)


def test_the_loss_equals_the_formula_on_plain_logits():
    model, batch = random_model("llama"), random_batch(2)
    config = actor_config(loss_agg_mode="token-mean", ppo_micro_batch_size_per_gpu=2)
    logprobs, entropies = score_logprobs(model, batch, temperature=0.7, max_samples=1)
    for row, ids in enumerate(batch.ids):
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0].float() / 0.7
        expected = torch.log_softmax(logits, -1)
        for t in range(1, len(ids)):
            if batch.mask[row, t]:
                assert logprobs[row, t].item() == pytest.approx(expected[t - 1, ids[t]].item(), abs=1e-4)
                entropy = -(expected[t - 1].exp() * expected[t - 1]).sum().item()
                assert entropies[row, t].item() == pytest.approx(entropy, abs=1e-4)
            else:
                assert logprobs[row, t] == 0
    # At ratio 1 the policy loss is minus the mean advantage.
    batch.old_logprobs = logprobs
    actor = Actor(model, replace(config, ppo_mini_batch_size=9), temperature=0.7, total_steps=1)
    metrics = actor.update(batch, step=1)
    mean_advantage = (batch.advantages * batch.mask).sum() / batch.mask.sum()
    assert metrics["actor/pg_loss"] == pytest.approx(-mean_advantage.item(), abs=1e-5)
    assert metrics["actor/ppo_kl"] == pytest.approx(0, abs=1e-6)
    mean_entropy = (entropies * batch.mask).sum() / batch.mask.sum()
    assert metrics["actor/entropy_loss"] == pytest.approx(mean_entropy.item(), abs=1e-4)
