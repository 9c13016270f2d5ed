"""Engines by the names of actor_rollout_ref.rollout.name: what is asked about one before it is built.

The configuration asks, too, so this module imports neither torch nor anything of ragen. A new engine is a folder beside
this file, with a function `build(rollout, source)` that returns an `Engine` (base.py), and a line in ENGINES.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineKind:
    """What is known of an engine by its name."""

    sentence: str
    """What it is, for `ragen list engines`."""
    module: str
    """Where its function `build` is."""
    can_train: bool
    """Replies are token ids with log-probs, of a model folder. Otherwise they are text, for evaluation only."""
    package: str | None = None
    """What must be installed for it; the extra of the same name brings it."""
    has_own_weights: bool = False
    """It plays with a copy of the weights and fills rollout.gpu_memory_utilization of a GPU, that copy included.

    Otherwise it plays with the trained weights, and its cache takes at most that share."""
    spans_ranks: bool = False
    """rollout.tensor_model_parallel_size ranks share one engine; otherwise each has its own."""


ENGINES = {
    "native": EngineKind(
        sentence="Decodes with the trained weights themselves, on a CPU or with CUDA graphs.",
        module="ragen.engine.native.build",
        can_train=True,
    ),
    "vllm": EngineKind(
        sentence="vLLM with a copy of the weights, which is refreshed after each update.",
        module="ragen.engine.vllm.engine",
        can_train=True,
        package="vllm",
        has_own_weights=True,
        spans_ranks=True,
    ),
    "api": EngineKind(
        sentence="An OpenAI-compatible server, for evaluation only.",
        module="ragen.engine.api.engine",
        can_train=False,
    ),
}
