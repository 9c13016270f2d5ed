"""Puzzles on texts and numbers (problems.py), and a tool for Python expressions (expression.py)."""
