"""Which engine of this process a model gets."""

import copy

from ragen.engine.graph.fused import weight_addresses
from ragen.engine.native.build import native_engine
from ragen.engine.native.engine import NativeEngine
from tests.engine.families import wide


def test_on_a_cpu_the_plain_engine_runs():
    model = wide("qwen2")
    assert isinstance(native_engine(model, max_num_seqs=4), NativeEngine)
    assert weight_addresses(model) == weight_addresses(copy.copy(model))
