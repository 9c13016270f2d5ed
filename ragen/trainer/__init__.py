"""The training loop and what it needs: scoring, validation, checkpoints, early stopping."""
