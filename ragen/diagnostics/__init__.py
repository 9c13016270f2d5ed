"""What training does to the policy: gradient analysis and the signs of collapsing reasoning.

A diagnostic is a class with `is_due(step)` that is called with the episodes or the batch of a step and returns metrics;
the trainer holds it, and none of them changes what is trained. Each metric has a line in docs/metrics.md.
"""
