"""What the rest of the program learns of an engine by its name."""

import ast
import importlib.util
from pathlib import Path

import pytest

from ragen.config.load import load_config
from ragen.engine.registry import ENGINES
from ragen.errors import ConfigError

NAME = "actor_rollout_ref.rollout.name"


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_is_a_value_of_the_configuration_and_has_a_builder(name):
    assert load_config("base", [f"{NAME}={name}"]).actor_rollout_ref.rollout.name == name
    spec = importlib.util.find_spec(ENGINES[name].module)
    assert spec is not None and spec.origin is not None
    functions = [node for node in ast.parse(Path(spec.origin).read_text()).body if isinstance(node, ast.FunctionDef)]
    [build] = [function for function in functions if function.name == "build"]
    assert [argument.arg for argument in build.args.args] == ["rollout", "source"]


def test_an_engine_that_no_configuration_can_build_is_no_value():
    with pytest.raises(ConfigError, match="native, vllm, api"):
        load_config("base", [f"{NAME}=scripted"])


@pytest.mark.parametrize(("name", "ranks"), [("native", 1), ("vllm", 2)])
def test_ranks_share_an_engine_that_spans_them(name, ranks):
    words = [f"{NAME}={name}", "actor_rollout_ref.rollout.tensor_model_parallel_size=2", "trainer.n_gpus_per_node=2"]
    words += ["system.CUDA_VISIBLE_DEVICES=''"]
    assert load_config("base", words).ranks_per_engine == ranks
