"""From a configuration to an agent."""

import math

import pytest
import torch

from ragen.config.load import load_config
from ragen.engine.api.engine import ApiEngine
from ragen.engine.base import ModelSource, Request, SamplingParams
from ragen.engine.native.engine import NativeEngine
from ragen.llm_agent.agent_proxy import RolloutPlan
from ragen.llm_agent.build import NO_DRAFTS, agent_with, build_agent, sampling_params
from ragen.llm_agent.es_manager import EsManager, levels_from
from ragen.llm_agent.metrics import rollout_metrics
from ragen.modeling.load import load_tokenizer
from ragen.models.resolve import resolve_model
from tests.engine.families import random_model

QUICK = ["system.CUDA_VISIBLE_DEVICES=''", "actor_rollout_ref.rollout.max_num_seqs=7"]


def test_an_agent_without_training_loads_the_folder():
    agent = build_agent(load_config("quickstart", QUICK), env_types=["bandit"], device="cpu")
    assert isinstance(agent.engine, NativeEngine) and agent.chat is not None
    assert agent.engine.max_num_seqs == 7
    assert agent.engine.device == torch.device("cpu")


@pytest.mark.parametrize(("dtype", "expected"), [("auto", torch.float32), ("bfloat16", torch.bfloat16)])
def test_a_model_that_only_plays_is_loaded_in_the_precision_that_is_asked_for(dtype, expected):
    words = [*QUICK, f"actor_rollout_ref.rollout.dtype={dtype}"]
    agent = build_agent(load_config("quickstart", words), env_types=["bandit"], device="cpu")
    assert {weight.dtype for weight in agent.engine.model.parameters()} == {expected}
    params = SamplingParams(max_tokens=4)
    agent.engine.submit(Request(session=1, prompt_ids=[5, 6, 7], params=params, seed=1))
    replies = []
    while not replies:
        replies = agent.engine.step()
    assert len(replies[0].logprobs) == 4 and all(math.isfinite(logprob) for logprob in replies[0].logprobs)


def test_a_training_says_that_the_precision_is_that_of_its_weights():
    policy = random_model("qwen2")
    for dtype, num_notes in (("auto", 0), ("float32", 0), ("bfloat16", 1)):
        config = load_config("quickstart", [*QUICK, f"actor_rollout_ref.rollout.dtype={dtype}"])
        notes = agent_with(config, ModelSource(path="", policy=policy, max_num_seqs=3)).notes
        assert len([note for note in notes if "dtype=bfloat16 changes nothing here" in note]) == num_notes


def test_a_trained_policy_is_played_with_as_it_is():
    config, policy = load_config("quickstart", QUICK), random_model("qwen2")
    tokenizer = load_tokenizer(resolve_model("tiny", env_types=["bandit"]))
    agent = agent_with(config, ModelSource(path="", tokenizer=tokenizer, policy=policy, max_num_seqs=3))
    assert isinstance(agent.engine, NativeEngine)
    assert agent.engine.model is policy
    assert agent.engine.max_num_seqs == 3  # what the memory has room for, not rollout.max_num_seqs
    assert agent.engine.load_weights(lambda: {}, lambda ids: torch.zeros(0)) == {}  # they are its own


def test_a_server_needs_no_folder_and_no_tokenizer():
    api = "actor_rollout_ref.rollout.api"
    words = ["actor_rollout_ref.rollout.name=api", f"{api}.base_url=http://127.0.0.1:1/v1", f"{api}.timeout_s=3"]
    agent = build_agent(load_config("quickstart", [*words, "model_path=org/some-model"]), env_types=["bandit"])
    assert isinstance(agent.engine, ApiEngine) and agent.chat is None
    assert (agent.engine.model, agent.engine.timeout_s) == ("org/some-model", 3)
    assert agent.engine.endpoint == "http://127.0.0.1:1/v1/chat/completions"
    agent.engine.close()


@pytest.mark.parametrize("drafts", [False, True])
def test_drafts_that_no_engine_makes_are_said_to_change_nothing(drafts):
    words = [*QUICK, f"actor_rollout_ref.rollout.drafts={drafts}"]
    server = ["actor_rollout_ref.rollout.name=api", "actor_rollout_ref.rollout.api.base_url=http://127.0.0.1:1/v1"]
    for changes in ([], ["actor_rollout_ref.rollout.enforce_eager=True"], server):
        agent = build_agent(load_config("quickstart", [*words, *changes]), env_types=["bandit"], device="cpu")
        notes = [note for note in agent.notes if "drafts=True changes nothing" in note]
        assert len(notes) == drafts
        agent.engine.close()


def test_what_an_engine_says_of_itself_stays_beside_it(monkeypatch):
    engine = NativeEngine(random_model("qwen2"))
    engine.note = "Slower."
    monkeypatch.setattr("ragen.engine.native.build.build", lambda rollout, source: engine)
    config = load_config("quickstart", [*QUICK, "actor_rollout_ref.rollout.drafts=True"])
    assert agent_with(config, ModelSource(path="")).notes == [f"Slower. {NO_DRAFTS}"]


def test_validation_has_sampling_of_its_own():
    words = ["actor_rollout_ref.rollout.temperature=0.7", "actor_rollout_ref.rollout.val_kwargs.do_sample=False"]
    config = load_config("quickstart", words)
    assert sampling_params(config, None, is_validation=False).temperature == 0.7
    assert sampling_params(config, None, is_validation=True).is_greedy


def test_every_reply_of_a_mixed_batch_is_cut_at_what_its_prompt_promises():
    tags = ["tags=[Bandit,BanditTest]", "n_groups=[3,3]"]
    words = ["agent_proxy.enforce_max_tokens=True", "custom_envs.Bandit.max_tokens=2"]
    words += ["custom_envs.BanditTest.max_tokens=5", "es_manager.val.env_groups=6"]
    config = load_config("quickstart_bandit", [*QUICK, *words, *(f"es_manager.val.env_configs.{tag}" for tag in tags)])
    environments = EsManager(config.es_manager.val, config.custom_envs)
    agent = build_agent(config, env_types=environments.env_types, device="cpu")
    params = sampling_params(config, agent.chat, is_validation=True)
    episodes = agent.rollout(
        environments, RolloutPlan(levels=levels_from(0, environments.num_groups), noise_seed=0, params=params)
    )
    turns = {tag: [e.turns[0] for e in episodes if e.tag == tag] for tag in ("Bandit", "BanditTest")}
    assert max(len(turn.response_ids) for turn in turns["Bandit"]) == 2
    assert max(len(turn.response_ids) for turn in turns["BanditTest"]) == 5
    num_cut = sum(turn.stop_reason == "length" for tag in turns for turn in turns[tag])
    assert rollout_metrics(episodes)["truncation/reply_length"] == num_cut > 0
