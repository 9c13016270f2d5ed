"""Text environments: what they are (`base`), which there are (`registry`), how any of them is tested (`checker`)."""

from ragen.env.base import Env, StepResult
from ragen.env.checker import check_env
from ragen.env.registry import REGISTRY, env_class, make_env, register

__all__ = ["REGISTRY", "Env", "StepResult", "check_env", "env_class", "make_env", "register"]
