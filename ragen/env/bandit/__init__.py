"""Bandit: two arms, one pull; the names tell which arm is the risky one.

One more pair of names is a row of ARMS in env.py; the embedded model has seen those of today.
"""
