"""RAGEN: train language-model agents with multi-turn reinforcement learning, and explain the training.

    config = ragen.load_config("quickstart_bandit", "trainer.total_training_steps=10")
    for step in ragen.Trainer(config):
        print(step.number, step.metrics["train/Bandit/success"])

docs/python.md shows what is offered here; each name is imported when it is first asked for, so that `import ragen` is
quick and loads no torch. docs/architecture.md is the map: what lives in which package, who may import whom, and where
to change or add things.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragen.api.agent import Agent
    from ragen.api.config import load_config
    from ragen.api.runs import Run, load_run
    from ragen.api.trainer import Step, Trainer
    from ragen.config.estimators import needs
    from ragen.config.schema import Config
    from ragen.env.base import Env, StepResult, TextEnv, step_info
    from ragen.env.checker import check_env
    from ragen.env.registry import make_env
    from ragen.errors import ConfigError, RagenError
    from ragen.types import Episode, Group, Turn

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "Config",
    "ConfigError",
    "Env",
    "Episode",
    "Group",
    "RagenError",
    "Run",
    "Step",
    "StepResult",
    "TextEnv",
    "Trainer",
    "Turn",
    "__version__",
    "check_env",
    "load_config",
    "load_run",
    "make_env",
    "needs",
    "step_info",
]

_HOMES = {
    "Agent": "api.agent",
    "Config": "config.schema",
    "ConfigError": "errors",
    "Env": "env.base",
    "Episode": "types",
    "Group": "types",
    "RagenError": "errors",
    "Run": "api.runs",
    "Step": "api.trainer",
    "StepResult": "env.base",
    "TextEnv": "env.base",
    "Trainer": "api.trainer",
    "Turn": "types",
    "check_env": "env.checker",
    "load_config": "api.config",
    "load_run": "api.runs",
    "make_env": "env.registry",
    "needs": "config.estimators",
    "step_info": "env.base",
}
"""Name -> the module below ragen that holds it."""

# Threads that spin while they wait slow each other down badly when processes outnumber cores, and threads that sleep at
# once wake up too late for the next of many small operations: they spin for some microseconds, then sleep. OpenMP reads
# this when torch is imported, so it is set here, before anything can import it.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ragen' has no attribute {name!r}. It offers: {', '.join(sorted(_HOMES))}.")
    found = getattr(import_module(f"ragen.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
