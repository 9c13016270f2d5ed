"""What ails a run: health.py reads it, rules.py says what its numbers mean, evidence.py which episodes show it, and
stop_cause.py why an early stop came.
"""
