"""Without vLLM its engine says how to get it; this runs where vLLM is not."""

import importlib.util

import pytest

from ragen.errors import MissingExtra
from ragen.llm_agent.build import build_agent
from ragen.trainer.starting.start import plan_start
from tests.trainer.runs import small_config

pytestmark = pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed")
VLLM = "actor_rollout_ref.rollout.name=vllm"


def test_training_and_evaluation_name_the_way_to_install_it(tmp_path):
    config = small_config(tmp_path, VLLM)
    with pytest.raises(MissingExtra, match=r"needs the package vllm.*pip install -e '\.\[vllm\]'.*name=native"):
        plan_start(config)
    with pytest.raises(MissingExtra, match=r"pip install -e '\.\[vllm\]'"):
        build_agent(config, env_types=["bandit"])
