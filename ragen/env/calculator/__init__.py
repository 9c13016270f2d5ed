"""Word problems with large numbers and a calculator: the environment (env.py), its problems (problems.py)."""

from ragen.env.calculator.env import CalculatorConfig, CalculatorEnv

__all__ = ["CalculatorConfig", "CalculatorEnv"]
