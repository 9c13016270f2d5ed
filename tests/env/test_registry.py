"""Environments by name: what is there, and what a mistake is told."""

import subprocess
import sys

import pytest

from ragen.env import REGISTRY, TextEnv, make_env, register
from ragen.env.registry import ADAPTERS
from ragen.env.sokoban.env import SokobanEnv
from ragen.errors import ConfigError


@pytest.mark.parametrize("env_type", [name for name in REGISTRY if name not in ADAPTERS])
def test_every_type_is_made_with_its_defaults(env_type: str):
    env = make_env(env_type)
    assert isinstance(env, TextEnv) and env.config == env.config_class()


def test_options_reach_the_config():
    env = make_env("sokoban", {"num_boxes": 2, "symbols": {"wall": "W"}})
    assert isinstance(env, SokobanEnv)
    assert (env.config.num_boxes, env.config.dim_x, env.config.symbols.wall) == (2, 6, "W")


@pytest.mark.parametrize(
    "env_type, config, message",
    [
        ("sokobn", {}, "Did you mean sokoban"),
        ("sokoban", {"num_box": 1}, "Did you mean sokoban.num_boxes"),
        ("sokoban", {"num_boxes": "1"}, "sokoban.num_boxes: expected an integer"),
        ("sokoban", {"num_boxes": True}, "sokoban.num_boxes: expected an integer"),
        ("frozen_lake", {"is_slippery": 1}, "frozen_lake.is_slippery"),
        ("frozen_lake", {"observation_format": "gird"}, "Did you mean grid"),
    ],
)
def test_a_mistake_is_answered_with_the_nearest_name(env_type: str, config: dict, message: str):
    with pytest.raises(ConfigError, match=message):
        make_env(env_type, config)


def test_a_registered_type_can_be_made(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ragen.env.registry.REGISTRY", dict(REGISTRY))
    register("my_sokoban", "ragen.env.sokoban.env:SokobanEnv")
    assert isinstance(make_env("my_sokoban"), SokobanEnv)
    with pytest.raises(ConfigError, match="already"):
        register("my_sokoban", "elsewhere:Other")
    with pytest.raises(ConfigError, match="module:Class"):
        register("broken", "no_colon")


def test_importing_the_environments_loads_neither_numpy_nor_gymnasium():
    code = "import sys, ragen.env; ragen.env.make_env('sokoban'); print({'numpy', 'gymnasium'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
