"""Figures and tables from run directories and W&B; nothing here needs torch or a model.

history.py reads a run, names of metrics come from ragen.tracking.names, style.py gives figures their looks. A figure:
a function that draws into `new_figure()`, a command in ragen/cli or a script in gradient_analysis/, and a test that
looks at its axes.
"""
