"""Which versions of vLLM the engine takes, and what it says of others."""

from __future__ import annotations

import pytest

pytest.importorskip("vllm")

import vllm

from ragen.engine.vllm import inner
from ragen.errors import EngineError

pytestmark = pytest.mark.vllm


def test_the_installed_version_is_one_of_those_that_were_tested():
    assert inner.version_note() == ""


@pytest.mark.parametrize("version", [(0, 23, 0), (0, 33, 0), (1, 0, 0)])
def test_another_version_is_said_to_be_untested(monkeypatch, version):
    monkeypatch.setattr(vllm, "__version_tuple__", version)
    assert "tested with 0.24 and 0.32, on a CPU" in inner.version_note()


def test_a_part_that_is_missing_is_named_with_the_versions_that_have_it():
    with pytest.raises(EngineError, match=r"has no vllm\.v1\.executor\.gone\.Part, which vLLM 0\.24 and 0\.32 have"):
        inner.part("vllm.v1.executor.gone", "Part")
    with pytest.raises(EngineError, match=r"has no vllm\.LLMEngine\.stop, .* Install one of those"):
        inner.part("vllm", "LLMEngine.stop")


def test_every_inner_part_is_there():
    assert inner.group_executor().__mro__[1].__name__ == "ExecutorWithExternalLauncher"
    assert inner.part("vllm.distributed.parallel_state", "get_tp_group")
    assert inner.part("vllm.v1.engine.core_client", "EngineCoreClient.shutdown")
