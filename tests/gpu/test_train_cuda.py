"""Training on a GPU. Run there: pytest -q -m gpu tests/gpu"""

import json

import pytest
import torch

from ragen.algorithms.entropy import head_logprobs
from ragen.config import load_config
from ragen.modeling.attention.packed import packed_attention
from ragen.modeling.model import hidden_states, logits_of
from ragen.modeling.packing import pack
from ragen.trainer.build import build_trainer
from tests.engine.families import FAMILIES, random_model
from tests.modeling.sequences import family_tree, mask_of, sampled_rows, sampled_targets, sequences

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_bfloat16_agrees_with_single_sequences(family):
    model = random_model(family, torch.bfloat16).cuda()
    packing = pack(sequences(), torch.device("cuda"))
    with torch.no_grad(), packed_attention(model, packing):
        packed = logits_of(model, hidden_states(model, packing)).float()
    with torch.no_grad():
        alone = torch.cat([model(torch.tensor([s], device="cuda")).logits[0] for s in sequences()]).float()
    # Random weights make logits of tens; bfloat16 has three digits.
    assert (packed - alone).norm() / alone.norm() < 0.03


@pytest.mark.parametrize("family", FAMILIES)
def test_common_beginnings_in_bfloat16_agree_with_whole_sequences(family):
    """Also where flash attention gets fewer queries than keys; the judge is float32 with nothing shared."""
    tree = family_tree()
    mask = mask_of(tree)
    targets = sampled_targets(tree, mask).cuda()

    def sampled(dtype: torch.dtype, *, share: bool) -> tuple[torch.Tensor, torch.Tensor]:
        model = random_model(family, dtype).cuda().train()
        packing = pack(tree, torch.device("cuda"), mask=mask if share else None, share=share)
        with packed_attention(model, packing):
            hidden = hidden_states(model, packing)[sampled_rows(mask.cuda(), packing)]
            logprobs, _ = head_logprobs(hidden, lambda states: logits_of(model, states), targets)
            logprobs.mean().backward()
        gradient = torch.cat([p.grad.flatten().float() for p in model.parameters() if p.grad is not None])
        return logprobs.detach(), gradient

    exact = sampled(torch.float32, share=False)
    whole, shared = (sampled(torch.bfloat16, share=share) for share in (False, True))
    for found, unshared, expected in zip(shared, whole, exact, strict=True):
        # No further from the truth than bfloat16 is without sharing, give or take.
        assert (found - expected).norm() < 1.5 * (unshared - expected).norm() + 0.01 * expected.norm()


@pytest.mark.parametrize(
    ("estimator", "is_checkpointed", "rank"),
    [("gae", True, 0), ("gae", False, 0), ("grpo", True, 0), ("grpo", False, 4)],
)
def test_the_trainer_trains_and_resumes(tmp_path, estimator, is_checkpointed, rank):
    def overrides(steps: int) -> list[str]:
        return [
            f"trainer.default_local_dir={tmp_path}",
            f"trainer.total_training_steps={steps}",
            f"algorithm.adv_estimator={estimator}",
            f"lora.rank={rank}",
            f"actor_rollout_ref.model.enable_gradient_checkpointing={is_checkpointed}",
            "actor_rollout_ref.actor.use_kl_loss=True",
            "actor_rollout_ref.actor.kl_loss_coef=0.01",
            "es_manager.val.env_groups=16",
            "trainer.save_freq=1",
        ]

    for steps in (2, 3):
        trainer = build_trainer(load_config("quickstart", overrides(steps)))
        assert trainer is not None
        trainer.fit()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 2, 3]
    for line in lines[1:]:
        assert line["actor/grad_norm"] > 0
        # bfloat16 rounds differently in the engine's and the trainer's kernels.
        assert line["rollout/logprob_mismatch_mean"] < 0.05
    print({k: lines[-1][k] for k in ("rollout/logprob_mismatch_mean", "rollout/logprob_mismatch_max", "timing_s/step")})
