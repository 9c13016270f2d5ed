"""Puzzles on texts and numbers (problems.py), and a tool for Python expressions (expression.py)."""

from ragen.env.python_expression.env import PythonExpressionConfig, PythonExpressionEnv

__all__ = ["PythonExpressionConfig", "PythonExpressionEnv"]
