"""Every estimator trains in every context mode."""

import math

import pytest
import torch
import yaml
from safetensors.torch import load_file

from ragen.config.load import build_config
from ragen.models.resolve import resolve_model
from ragen.tracking.glossary import unknown
from ragen.tracking.rundir import read_table
from tests.trainer.runs import LAKE, Run, train

GROUPED = ["grpo", "brpo", "arpo", "rloo", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "gigpo"]
ESTIMATORS = {name: [f"algorithm.adv_estimator={name}"] for name in ["gae", *GROUPED]} | {
    "bi_level_gae": ["algorithm.adv_estimator=gae", "algorithm.bi_level_gae=True"],
    "dr_grpo": [
        "algorithm.adv_estimator=grpo",
        "algorithm.norm_adv_by_std_in_grpo=False",
        "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum",
    ],
}
MODES = ["full", "limited_multi_turn", "single_turn"]


def is_changed(run: Run, step: int = 2, role: str = "actor") -> bool:
    before = load_file(resolve_model("tiny/frozen_lake") / "model.safetensors")
    after = run.weights(step, role)
    shared = before.keys() & after.keys()
    assert shared
    return any(not torch.equal(before[name], after[name]) for name in shared)


def check_complete(run: Run, *, num_steps: int = 2) -> None:
    """The run directory tells the whole story."""
    assert build_config(yaml.safe_load((run.path / "config.yaml").read_text()))
    metrics = run.metrics
    assert list(metrics) == list(range(num_steps + 1))
    names = {name for row in metrics.values() for name in row}
    assert unknown(names) == []
    assert [
        (step, name) for step, row in metrics.items() for name, value in row.items() if not math.isfinite(value)
    ] == []
    for step in range(1, num_steps + 1):
        episodes = run.episodes(step)
        assert len(episodes) == 12
        columns, rows = read_table(run.path, "rollout/reward_table", step)
        assert columns == ["group_id", "reward_0", "reward_1", "reward_2", "reward_3"]
        assert sorted(score for row in rows for score in row[1:]) == sorted(episode.score for episode in episodes)
    assert len(run.episodes(0, "val")) == len(run.episodes(num_steps, "val")) == 4
    assert run.status["state"] == "finished" and run.status["step"] == num_steps


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_estimator_trains_in_every_context_mode(tmp_path, estimator, mode):
    run = train(tmp_path, *ESTIMATORS[estimator], f"agent_proxy.context_window_mode={mode}", env=LAKE)
    check_complete(run)
    assert is_changed(run)
    has_critic = "gae" in estimator
    assert (run.path / "global_step_2" / "critic").is_dir() == has_critic
    last = run.metrics[2]
    assert last["actor/lr"] == 1e-3 and last["actor/skipped_steps"] == 0 and last["actor/grad_norm"] > 0
    assert ("critic/vf_loss" in last) == has_critic
    if has_critic:
        assert is_changed(run, role="critic")
    # One sample per episode, or per turn.
    num_samples = 12 if mode == "full" else sum(len(episode.turns) for episode in run.episodes(2))
    assert last["train/batch_size"] == num_samples
    assert last["train/num_mini_batches"] == math.ceil(num_samples / 8)
