"""Environments by name: what is there, and what a mistake is told."""

import subprocess
import sys

import pytest

from ragen.env import REGISTRY, TextEnv, make_env, register
from ragen.env.registry import ADAPTERS, check_options, env_class
from ragen.env.sokoban.env import SokobanEnv
from ragen.errors import ConfigError


@pytest.mark.parametrize("env_type", [*sorted(REGISTRY.keys() - ADAPTERS.keys()), "gymnasium"])
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


class NoReset(TextEnv):
    def step(self, action):
        raise NotImplementedError

    def render(self):
        return ""


class OldReset(NoReset):
    def reset(self, seed):
        return ""


class Static(NoReset):
    def reset(self, seed, member=0):
        return ""

    @staticmethod
    def render():
        return ""


class NoConfig(Static):
    def __init__(self):
        super().__init__()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("NoReset", r"env_type=tests\.env\.test_registry:NoReset: it does not write reset\. It must be"),
        ("NoConfig", r"its __init__ cannot be called \(too many .*\)\. Write def __init__\(self, config=None\)\."),
        ("OldReset", r"its reset cannot be called \(too many .*\)\. Write def reset\(self, seed, member=0\)\."),
    ],
)
def test_a_class_of_ones_own_that_cannot_be_played_is_told_what_to_write(name: str, message: str):
    with pytest.raises(ConfigError, match=message):
        check_options("Mine", f"tests.env.test_registry:{name}", None)
    assert env_class("tests.env.test_registry:Static") is not None


def test_mistakes_name_the_keys_of_the_tag():
    with pytest.raises(ConfigError, match=r"^custom_envs\.Mine\.env_config\.num_boxes is 99\."):
        check_options("Mine", "sokoban", {"num_boxes": 99})
    with pytest.raises(ConfigError, match=r"^custom_envs\.Mine: lookup: min_hops 3 exceeds"):
        check_options("Mine", "lookup", {"min_hops": 3, "max_hops": 1})
    with pytest.raises(ConfigError, match=r"^custom_envs\.Mine\.env_config\.foo: unknown key\. .* takes no options\."):
        check_options("Mine", "tests.env.test_registry:Static", {"foo": 3})
