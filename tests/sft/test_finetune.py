"""The loss, the batches and the schedule of supervised training."""

import dataclasses

import pytest
import torch
from torch.nn.functional import cross_entropy

from ragen.modeling.load import load_model
from ragen.models.resolve import resolve_model
from ragen.sft.finetune import Finetuner, epoch_batches
from ragen.types import Sample
from tests.sft.supervised import configured, samples


def sample_of(num_replies: int) -> Sample:
    return Sample(
        group_id=0,
        member=0,
        input_ids=[1],
        loss_mask=[0],
        logprobs=[0.0],
        turn_spans=[(0, 1)] * num_replies,
        turn_scores=[0.0] * num_replies,
    )


def test_batches_hold_whole_episodes_and_enough_replies():
    pool = [sample_of(n) for n in (1, 2, 3, 2, 1, 3)]
    batches = epoch_batches(pool, batch_size=4, seed=0, epoch=0)
    assert sorted(id(s) for batch in batches for s in batch) == sorted(map(id, pool))
    sizes = [sum(len(s.turn_spans) for s in batch) for batch in batches]
    assert all(size >= 4 for size in sizes[:-1])
    assert all(sum(len(s.turn_spans) for s in batch[:-1]) < 4 for batch in batches)
    assert [len(b) for b in epoch_batches(pool, batch_size=4, seed=0, epoch=1)] != []


def test_the_packed_loss_is_that_of_the_replies_alone(tokenizer):
    _, sft = configured()
    _, val = samples(tokenizer)
    model = load_model(resolve_model("tiny/frozen_lake"), device="cpu", is_trained=True)
    total, count = 0.0, 0
    with torch.no_grad():
        for sample in val:
            ids = torch.tensor(sample.input_ids)
            logits = model(ids[None]).logits[0, :-1]
            is_reply = torch.tensor(sample.loss_mask[1:]).bool()
            total += cross_entropy(logits[is_reply], ids[1:][is_reply], reduction="sum").item()
            count += int(is_reply.sum())
    losses = []
    for micro_batch_size in (1, 4, 100):
        tuner = Finetuner(model, dataclasses.replace(sft, micro_batch_size=micro_batch_size), total_steps=1)
        losses.append(tuner.loss(val))
    assert losses == pytest.approx([total / count] * 3, rel=1e-5)


def test_the_learning_rate_warms_up_and_falls():
    _, sft = configured()
    model = load_model(resolve_model("tiny/frozen_lake"), device="cpu", is_trained=True)
    tuner = Finetuner(model, sft, total_steps=40)
    rates = [tuner.optimizer.learning_rate(step) for step in range(1, tuner.total_steps + 1)]
    peak = rates.index(max(rates))
    assert peak == pytest.approx(0.1 * len(rates), abs=1.5)
    assert rates[:peak] == sorted(rates[:peak])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert 0 < rates[-1] < 0.05 * max(rates)
