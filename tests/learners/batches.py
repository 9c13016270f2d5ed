"""A random batch, the configuration of an actor and a value model, for the tests of what learns."""

from dataclasses import replace

import torch

from ragen.config import load_config
from ragen.learners.batch import Batch, make_batch
from ragen.types import Sample
from tests.engine.families import SHAPE, VOCAB


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


SPLITS = [
    {"ppo_micro_batch_size_per_gpu": 1},
    {"ppo_micro_batch_size_per_gpu": 2},
    {"use_dynamic_bsz": True, "ppo_max_token_len_per_gpu": 40},
]
"""Sizes of micro batches."""


def value_model():
    from transformers import AutoModelForTokenClassification, Qwen2Config

    torch.manual_seed(0)
    return AutoModelForTokenClassification.from_config(Qwen2Config(**SHAPE, num_labels=1), dtype=torch.float32).eval()
