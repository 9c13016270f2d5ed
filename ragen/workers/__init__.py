"""The models that learn: actor, critic and reference, and the passes over a batch they offer."""
