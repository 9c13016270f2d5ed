"""Tries every task of a package that an adapter plays, and writes down which of them work: survey.py."""
