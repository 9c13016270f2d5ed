"""reasoning_gym by name: what a mistake is told. What the generators do is in tests/env/adapters."""

import sys

import pytest

from ragen.env import make_env
from ragen.errors import ConfigError, MissingExtra


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"name": "count_down"}, r"reasoning_gym.name 'count_down' is unknown. Did you mean countdown\?"),
        ({"name": "rush_hour"}, "reasoning_gym.name 'rush_hour' is refused: it holds no answer of its own"),
        ({"nam": "countdown"}, "Did you mean reasoning_gym.name"),
        ({"max_steps": 0}, "reasoning_gym.max_steps is 0"),
        ({"options": {"seed": 3}}, "reasoning_gym.options.seed comes from the level's seed"),
    ],
)
def test_a_mistake_is_named_without_the_package(config: dict, message: str):
    with pytest.raises(ConfigError, match=message):
        make_env("reasoning_gym", config)


def test_without_the_package_the_install_command_is_given(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(MissingExtra, match=r"'countdown' needs reasoning-gym.*pip install -e '\.\[reasoning-gym\]'"):
        make_env("reasoning_gym", {"name": "countdown"})
