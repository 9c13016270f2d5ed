"""Figures from run directories; nothing here needs torch or a model."""
