"""Text environments: what they are (base.py), which there are (registry.py), how any of them is tested (checker.py).

A TextEnv is given the text of an answer; an Env, its simpler case, the id of an action out of a list. A ToolEnv
(tool_env.py) also offers tools, whose calls are read by tools.py.

board.py, bits.py, picture.py   boards of cells: FrozenLake and Sokoban
arms.py                         one pull of a named arm: the two bandits
attempts.py                     tasks with several answers: Countdown, Sudoku, guess the number, reasoning-gym
arithmetic.py                   expressions that a model wrote, walked and never evaluated: Countdown, the calculator
gymnasium.py, success_rule.py   Gymnasium environments, and minigrid.py for MiniGrid's boards
reasoning_gym, textarena,
textworld, openenv              adapters to other packages, with survey.py, package_options.py and shared_random.py
boundary.py                     calls into environments that others wrote; only checked values come back
time_limit.py                   what names the call that hangs while an environment is checked

One more environment: a folder with env.py (a config dataclass with defaults, and `reset`, `step`, `render`, `actions`),
a line in registry.REGISTRY and an entry in config/envs.yaml. The checker tests it from then on; see
docs/environments.md.
"""

from ragen.env.base import Env, StepResult, TextEnv
from ragen.env.checker import check_env
from ragen.env.registry import REGISTRY, env_class, make_env, register
from ragen.env.tool_env import ToolEnv, ToolRefused
from ragen.env.tools import Tool, ToolCall

__all__ = [
    "REGISTRY",
    "Env",
    "StepResult",
    "TextEnv",
    "Tool",
    "ToolCall",
    "ToolEnv",
    "ToolRefused",
    "check_env",
    "env_class",
    "make_env",
    "register",
]
