"""Bandit: two arms, one pull; the names tell which arm is the risky one."""
