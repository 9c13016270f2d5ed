"""Attention functions that models are switched to, one file each."""
