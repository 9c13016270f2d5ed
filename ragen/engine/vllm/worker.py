"""What the engine asks of vLLM's workers, wherever they run: methods that vLLM adds to its worker class.

Tested in tests/vllm/test_engine.py.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from ragen.engine.vllm.sampler import ENTROPIES


class WorkerExtension:
    """`worker_extension_cls` of vLLM; `LLMEngine.collective_rpc` calls these by name."""

    reload_weights: Any
    """vLLM's: takes weights named as in the model folder, while the model stands."""

    def take_weights(self, named: Mapping[str, Tensor]) -> None:
        self.reload_weights(weights_iterator=iter(named.items()))

    def take_entropies(self, replies: Sequence[int]) -> list[list[float]]:
        """Entropies of the tokens of these replies, which are forgotten here."""
        return [ENTROPIES.pop(reply, []) for reply in replies]

    def process_id(self) -> int:
        return os.getpid()
