"""vLLM in processes that train together: an engine in each, or one that they share."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")
pytest.importorskip("ray")

import ray

from ragen.cli import main as ragen
from ragen.errors import ConfigError, EngineError, WorkerError
from ragen.tracking.episodes import read_episodes
from ragen.tracking.rundir import read_metrics
from ragen.trainer.agent_trainer import AgentTrainer
from ragen.trainer.build import build_trainer
from ragen.trainer.starting.start import plan_start
from tests.trainer.ray_runs import assert_same_run, train_on
from tests.trainer.runs import LAKE, Run, small_config, train

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

VLLM = "actor_rollout_ref.rollout.name=vllm"
SHARED = "actor_rollout_ref.rollout.tensor_model_parallel_size=2"
TWO = "trainer.n_gpus_per_node=2"
CANARY = "rollout/canary_logprob_diff"
GRPO = ("algorithm.adv_estimator=grpo", "agent_proxy.max_turn=3")
"""A worker that died ends the run within this time, on a busy machine."""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory) -> Iterator:
    """Two processes that serve the runs of this module, and room for those of runs that fail."""
    from ragen.distributed.ranks import Ranks

    config = small_config(tmp_path_factory.mktemp("ranks"), TWO, "ray_kwargs.ray_init.num_cpus=4")
    found = Ranks(config, device="cpu")
    yield found
    found.close()


@pytest.fixture(scope="module")
def one_process(tmp_path_factory) -> Run:
    return train(tmp_path_factory.mktemp("one"), VLLM, *GRPO, env=LAKE)


def built(root: Path, *changes: str, ranks: Any = None) -> AgentTrainer:
    trainer = build_trainer(small_config(root, VLLM, TWO, *GRPO, *changes, env=LAKE), ranks=ranks)
    assert trainer is not None
    return trainer


def in_ranks(trainer: AgentTrainer, function: Any) -> list[Any]:
    """What a function of the process says in each rank."""
    actors = trainer.workers.ranks.actors  # type: ignore[attr-defined]
    return ray.get([actor.__ray_call__.remote(function) for actor in actors])


def assert_weights_arrive(run: Run) -> None:
    for step in set(run.metrics) - {0}:
        assert 0 < run.metrics[step][CANARY] < 1e-5
        assert run.metrics[step]["rollout/logprob_mismatch_max"] < 1e-4


@pytest.mark.parametrize("changes", [(), (SHARED,)], ids=["an engine each", "a shared engine"])
def test_ranks_play_and_train_as_one_process_does(changes, one_process, ranks, tmp_path):
    run = train_on(ranks, 2, tmp_path, VLLM, *changes, *GRPO, env=LAKE)
    assert any(len(episode.turns) > 1 for episode in run.episodes(2))
    assert run.metrics[2]["actor/grad_norm"] > 0
    assert_same_run(one_process, run)
    assert_weights_arrive(run)


def test_merged_adapters_reach_a_shared_engine(ranks, tmp_path):
    """With a critic, and a number of groups that changes between training and validation."""
    changes = (VLLM, "lora.rank=4", "es_manager.train.env_groups=1", "es_manager.train.group_size=8")
    one = train(tmp_path / "one", *changes, env=LAKE)
    many = train_on(ranks, 2, tmp_path / "many", *changes, SHARED, env=LAKE)
    assert_same_run(one, many)
    assert_weights_arrive(many)


def test_a_rank_without_groups_waits(ranks, tmp_path):
    changes = ("es_manager.train.env_groups=1", "es_manager.train.group_size=8", "trainer.save_freq=-1")
    run = train_on(ranks, 2, tmp_path, VLLM, *changes, env=LAKE)
    assert run.status["state"] == "finished"
    assert_weights_arrive(run)


def num_heads(process: Any) -> int:
    executor = process._workers.agent.engine.engine.engine.model_executor
    return executor.driver_worker.worker.get_model().model.layers[0].self_attn.num_heads


def test_a_shared_engine_has_a_part_of_the_model_in_each_rank_and_goes_on_from_a_checkpoint(
    one_process, ranks, tmp_path
):
    changes = ("trainer.resume_mode=resume_path", f"trainer.resume_from_path={one_process.path / 'global_step_2'}")
    trainer = built(tmp_path, *changes, SHARED, "trainer.total_training_steps=3", ranks=ranks)
    assert in_ranks(trainer, num_heads) == [1, 1], "of two"
    trainer.fit()
    assert_weights_arrive(Run(tmp_path))


def lose_a_layer(process: Any) -> None:
    """The last rank hands its engine less than everything."""
    workers = process._workers
    if workers.rank.number == 1:
        engine = workers.agent.engine
        load = engine.load_weights
        engine.load_weights = lambda weights, score: load(
            lambda: {name: weight for name, weight in weights().items() if ".layers.1." not in name}, score
        )


def test_weights_that_did_not_arrive_at_one_rank_end_the_run(ranks, tmp_path):
    trainer = built(tmp_path, "trainer.save_freq=-1")
    in_ranks(trainer, lose_a_layer)
    with pytest.raises(EngineError, match="After a weight sync vLLM and the trainer differ"):
        trainer.fit()
    assert Run(tmp_path).status["state"] == "failed"


def die_in_a_rollout(process: Any) -> None:
    """A rank that follows is killed in its fifth step."""
    shared = process._workers.agent.engine
    if not shared.is_leader:
        engine = shared.engine
        step, count = engine.step, 0

        def counted() -> Any:
            nonlocal count
            count += 1
            if count == 5:
                os.kill(os.getpid(), signal.SIGKILL)
            return step()

        engine.step = counted


def test_a_rank_killed_while_it_follows_another_is_named(ranks, tmp_path):
    trainer = built(tmp_path, SHARED, "trainer.save_freq=-1")
    in_ranks(trainer, die_in_a_rollout)
    with pytest.raises(WorkerError, match=r"Worker 1 of 2 .* died during play"):
        trainer.fit()


def test_a_model_spread_over_two_devices_is_evaluated_the_same(tmp_path):
    words = ["tiny", "es_manager.val.env_configs.tags=[FrozenLake]", "es_manager.val.env_groups=6", "--no-reference"]
    words += ["actor_rollout_ref.rollout.max_model_len=1024", "actor_rollout_ref.rollout.response_length=48"]
    words += ["system.CUDA_VISIBLE_DEVICES=''"]
    for name, changes in {"native": (), "vllm": (SHARED, TWO)}.items():
        words_of_this = [*words, f"actor_rollout_ref.rollout.name={name}", *changes, "--out", str(tmp_path / name)]
        assert ragen(["eval", *words_of_this, "--max-turn", "3"]) == 0
    for file in (tmp_path / "native" / "episodes").glob("*.jsonl.gz"):
        ours, theirs = (list(read_episodes(tmp_path / name / "episodes" / file.name)) for name in ("vllm", "native"))
        assert [[t.response_ids for t in e.turns] for e in ours] == [[t.response_ids for t in e.turns] for e in theirs]
    assert read_metrics(tmp_path / "vllm") == read_metrics(tmp_path / "native")


def test_an_engine_is_not_shared_between_machines(tmp_path):
    with pytest.raises(ConfigError, match=r"parallel_size is 2, which does not divide trainer\.n_gpus_per_node=3"):
        plan_start(small_config(tmp_path, VLLM, SHARED, "trainer.n_gpus_per_node=3", "trainer.nnodes=2"))
