"""The factory of the embedded models: `python -m tools.embedded_models.make`, or `make model`."""
