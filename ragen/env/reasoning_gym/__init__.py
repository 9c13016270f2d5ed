"""The generators of reasoning-gym (env.py): what was tried (tasks.json), what scorers may be given (guard.py)."""

from ragen.env.reasoning_gym.env import ReasoningGymConfig, ReasoningGymEnv

__all__ = ["ReasoningGymConfig", "ReasoningGymEnv"]
