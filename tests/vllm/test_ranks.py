"""vLLM in processes that train together: an engine in each, or one that they share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("vllm")
pytest.importorskip("ray")

from ragen.errors import ConfigError
from ragen.trainer.start import plan_start
from tests.trainer.ray_runs import assert_same_run, train_on
from tests.trainer.runs import LAKE, Run, small_config, train

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

VLLM = "actor_rollout_ref.rollout.name=vllm"
SHARED = "actor_rollout_ref.rollout.tensor_model_parallel_size=2"
CANARY = "rollout/canary_logprob_diff"
GRPO = ("algorithm.adv_estimator=grpo", "agent_proxy.max_turn=3")


@pytest.fixture(scope="module")
def ranks(tmp_path_factory) -> Iterator:
    """Two processes that serve the runs of this module."""
    from ragen.workers.ray_fsdp import Ranks

    found = Ranks(small_config(tmp_path_factory.mktemp("ranks"), "trainer.n_gpus_per_node=2"), device="cpu")
    yield found
    found.close()


@pytest.fixture(scope="module")
def one_process(tmp_path_factory) -> Run:
    return train(tmp_path_factory.mktemp("one"), VLLM, *GRPO, env=LAKE)


@pytest.mark.parametrize("changes", [(), (SHARED,)], ids=["an engine each", "a shared engine"])
def test_ranks_play_and_train_as_one_process_does(changes, one_process, ranks, tmp_path):
    run = train_on(ranks, 2, tmp_path, VLLM, *changes, *GRPO, env=LAKE)
    assert any(len(episode.turns) > 1 for episode in run.episodes(2))
    assert_same_run(one_process, run)
    for step in (1, 2):
        assert run.metrics[step]["actor/grad_norm"] > 0
        assert 0 < run.metrics[step][CANARY] < 1e-5
        assert run.metrics[step]["rollout/logprob_mismatch_max"] < 1e-4
