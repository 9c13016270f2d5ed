"""The two-armed bandit of the base experiments."""
