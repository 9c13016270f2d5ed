from collections.abc import Iterator

import pytest

from ragen.env import REGISTRY, register


@pytest.fixture(autouse=True, scope="module")
def counting_environment() -> Iterator[None]:
    """The counting environment is known by name while the tests of this folder run."""
    register("counting", "tests.llm_agent.counting:CountingEnv")
    yield
    del REGISTRY["counting"]
