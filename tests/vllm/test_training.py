"""Training and evaluation with vLLM, beside the same runs with the native engine."""

from __future__ import annotations

from functools import partial

import pytest

pytest.importorskip("vllm")

from ragen.cli import main as ragen
from ragen.errors import EngineError
from ragen.tracking.episodes import read_episodes
from ragen.tracking.rundir import read_metrics
from ragen.trainer.build import build_trainer
from ragen.types import Episode
from ragen.workers.local import LocalWorkers, text_logprobs
from tests.trainer.runs import LAKE, Run, small_config, train

pytestmark = pytest.mark.vllm

VLLM = "actor_rollout_ref.rollout.name=vllm"
CANARY = "rollout/canary_logprob_diff"
GRPO = ("algorithm.adv_estimator=grpo", "agent_proxy.max_turn=3", "trainer.val_greedy=True")


def tokens(episodes: list[Episode]) -> list[list[tuple[list[int], list[int], str]]]:
    return [[(turn.prompt_ids, turn.response_ids, turn.stop_reason) for turn in e.turns] for e in episodes]


@pytest.fixture(scope="module")
def with_vllm(tmp_path_factory) -> Run:
    return train(tmp_path_factory.mktemp("vllm"), VLLM, *GRPO, env=LAKE)


@pytest.fixture(scope="module")
def with_native(tmp_path_factory) -> Run:
    return train(tmp_path_factory.mktemp("native"), *GRPO, env=LAKE)


def test_every_update_reaches_vllm(with_vllm):
    assert with_vllm.status["state"] == "finished"
    for step in (1, 2):
        metrics = with_vllm.metrics[step]
        assert metrics["actor/grad_norm"] > 0
        assert 0 < metrics[CANARY] < 1e-5
        assert metrics["rollout/logprob_mismatch_max"] < 1e-4


def test_weights_from_before_an_update_are_found_out(tmp_path):
    trainer = build_trainer(small_config(tmp_path, VLLM, *GRPO, "trainer.save_freq=-1", env=LAKE))
    assert trainer is not None and isinstance(trainer.workers, LocalWorkers)
    model, agent = trainer.workers.actor.model, trainer.workers.agent
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with trainer.trackers:
        trainer.step(1)
    with pytest.raises(EngineError, match="After a weight sync vLLM and the trainer differ"):
        agent.engine.load_weights(lambda: before, partial(text_logprobs, model))
    assert agent.engine.load_weights(model.state_dict, partial(text_logprobs, model))[CANARY] < 1e-5
    trainer.workers.close()


@pytest.mark.parametrize(("step", "kind"), [(1, "train"), (2, "train"), (2, "val")])
def test_episodes_of_several_turns_equal_those_of_the_native_engine(with_vllm, with_native, step, kind):
    ours, theirs = with_vllm.episodes(step, kind), with_native.episodes(step, kind)
    assert any(len(episode.turns) > 1 for episode in ours)
    assert tokens(ours) == tokens(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        for turn, twin in zip(mine.turns, other.turns, strict=True):
            assert turn.logprobs == pytest.approx(twin.logprobs, abs=1e-3)


def test_both_runs_learn_the_same(with_vllm, with_native):
    for name in ("train/FrozenLake/success", "actor/pg_loss", "actor/grad_norm", "actor/entropy"):
        for step in (1, 2):
            assert with_vllm.metrics[step][name] == pytest.approx(with_native.metrics[step][name], abs=1e-3)
    ours, theirs = with_vllm.weights(2), with_native.weights(2)
    assert all((ours[name] - theirs[name]).abs().max() < 1e-3 for name in theirs)


def test_adapters_reach_vllm_merged(tmp_path):
    run = train(tmp_path, VLLM, *GRPO, "lora.rank=4", "trainer.save_freq=-1", env=LAKE)
    for step in (1, 2):
        assert run.metrics[step][CANARY] < 1e-5
        assert run.metrics[step]["rollout/logprob_mismatch_max"] < 1e-4


def test_a_resumed_run_plays_with_the_weights_of_its_checkpoint(with_vllm, tmp_path):
    checkpoint = with_vllm.path / "global_step_2"
    changes = ("trainer.resume_mode=resume_path", f"trainer.resume_from_path={checkpoint}")
    trainer = build_trainer(small_config(tmp_path, VLLM, *GRPO, *changes, "trainer.total_training_steps=3", env=LAKE))
    assert trainer is not None
    trainer.fit()  # the first sync would have raised
    assert Run(tmp_path).metrics[3]["rollout/logprob_mismatch_max"] < 1e-4


def test_evaluations_agree(tmp_path):
    words = ["tiny", "es_manager.val.env_configs.tags=[FrozenLake]", "es_manager.val.env_groups=6", "--no-reference"]
    words += ["actor_rollout_ref.rollout.max_model_len=1024", "actor_rollout_ref.rollout.response_length=48"]
    for name in ("native", "vllm"):
        folder = str(tmp_path / name)
        assert (
            ragen(["eval", *words, f"actor_rollout_ref.rollout.name={name}", "--max-turn", "3", "--out", folder]) == 0
        )
    files = sorted(path.name for path in (tmp_path / "native" / "episodes").glob("*.jsonl.gz"))
    assert len(files) == 2  # sampled and greedy
    for file in files:
        ours, theirs = (list(read_episodes(tmp_path / name / "episodes" / file)) for name in ("vllm", "native"))
        assert tokens(ours) == tokens(theirs)
    assert read_metrics(tmp_path / "vllm") == read_metrics(tmp_path / "native")
