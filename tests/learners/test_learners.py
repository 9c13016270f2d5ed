"""Actor and critic: what they compute does not depend on how the batch is cut."""

import copy
from dataclasses import replace

import pytest
import torch

from ragen.config import load_config
from ragen.learners.actor import Actor, score_logprobs
from ragen.learners.batch import Batch, make_batch
from ragen.learners.critic import Critic
from ragen.types import Sample
from tests.engine.families import SHAPE, VOCAB, random_model


def random_batch(num_samples: int = 7) -> Batch:
    """Samples of different lengths with holes in their masks, scored with random numbers."""
    generator = torch.Generator().manual_seed(1)
    samples = []
    for i in range(num_samples):
        length = 6 + 3 * i
        ids = torch.randint(3, VOCAB, (length,), generator=generator).tolist()
        mask = [0, 0, 1, 1, 0] + [1] * (length - 5)
        samples.append(
            Sample(
                group_id=i // 2,
                member=i % 2,
                input_ids=ids,
                loss_mask=mask,
                logprobs=[-1.0 * m for m in mask],
                turn_spans=[(2, 4), (5, length)],
                turn_scores=[0.0, float(i)],
            )
        )
    batch = make_batch(samples, {})
    noise = torch.randn(5, *batch.mask.shape, generator=generator)
    batch.old_logprobs = -3 + 0.2 * noise[0]
    batch.ref_logprobs = -3 + 0.2 * noise[1]
    batch.advantages, batch.returns, batch.values = noise[2] * batch.mask, noise[3], 0.5 * noise[4] * batch.mask
    return batch


def actor_config(**changes):
    config = load_config("base", ["model_path=tiny"]).actor_rollout_ref.actor
    return replace(config, ppo_mini_batch_size=3, use_kl_loss=True, kl_loss_coef=0.1, entropy_coeff=0.01, **changes)


CUTS = [
    {"ppo_micro_batch_size_per_gpu": 1},
    {"ppo_micro_batch_size_per_gpu": 2},
    {"use_dynamic_bsz": True, "ppo_max_token_len_per_gpu": 40},
]


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"])
@pytest.mark.parametrize("policy_loss", ["ppo", "gspo", "cispo"])
def test_an_actor_update_does_not_depend_on_the_micro_batches(mode, policy_loss):
    results = []
    for cut in ({"ppo_micro_batch_size_per_gpu": 7}, *CUTS):
        model = random_model("qwen2")
        config = actor_config(loss_agg_mode=mode, policy_loss=policy_loss, **cut)
        config = replace(config, optim=replace(config.optim, lr=1e-3))
        actor = Actor(model, config, temperature=0.9, total_steps=10)
        metrics = actor.update(random_batch(), step=1)
        results.append((metrics, torch.cat([p.detach().flatten() for p in model.parameters()])))
    for metrics, weights in results[1:]:
        assert metrics == pytest.approx(results[0][0], rel=1e-3, abs=1e-5)
        torch.testing.assert_close(weights, results[0][1], atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize(("sizes", "expected"), [("even", [3, 2, 2]), ("full", [3, 3, 1])])
def test_mini_batches_are_even_or_full(sizes, expected):
    config = actor_config(mini_batch_sizes=sizes, ppo_micro_batch_size_per_gpu=7)
    actor = Actor(random_model("qwen2"), config, temperature=1.0, total_steps=10)
    found = []

    def loss_of(batch, packing):
        found.append(len(batch))
        return actor.loss(batch, packing)

    actor.train_on(random_batch(7), step=1, loss_of=loss_of)
    assert found == expected


def test_shuffled_mini_batches_depend_on_the_seed_and_on_the_step():
    def order(seed: int, step: int) -> list[list[int]]:
        config = actor_config(shuffle=True, ppo_micro_batch_size_per_gpu=7)
        actor = Actor(random_model("qwen2"), config, temperature=1.0, total_steps=10, seed=seed)
        found = []

        def loss_of(batch, packing):
            found.append(sorted(batch.lengths))
            return actor.loss(batch, packing)

        actor.train_on(random_batch(7), step=step, loss_of=loss_of)
        return found

    assert order(1, 1) == order(1, 1)
    assert order(1, 1) != order(2, 1) != order(2, 2)


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


def value_model():
    from transformers import AutoModelForTokenClassification, Qwen2Config

    torch.manual_seed(0)
    return AutoModelForTokenClassification.from_config(Qwen2Config(**SHAPE, num_labels=1), dtype=torch.float32).eval()


def test_a_critic_update_does_not_depend_on_the_micro_batches():
    results = []
    for cut in ({"ppo_micro_batch_size_per_gpu": 7}, *CUTS):
        config = replace(load_config("base", ["model_path=tiny"]).critic, ppo_mini_batch_size=3, **cut)
        critic = Critic(value_model(), replace(config, optim=replace(config.optim, lr=1e-3)), total_steps=10)
        metrics = critic.update(random_batch(), step=1)
        results.append((metrics, torch.cat([p.detach().flatten() for p in critic.model.parameters()])))
    for metrics, weights in results[1:]:
        assert metrics == pytest.approx(results[0][0], rel=1e-3, abs=1e-5)
        torch.testing.assert_close(weights, results[0][1], atol=2e-4, rtol=1e-3)


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
