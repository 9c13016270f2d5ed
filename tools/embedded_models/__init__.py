"""The factory of the embedded models: `python -m tools.embedded_models.make`, or `make model`.

One more model is a recipe in make.RECIPES and a row of TINY_FAMILIES in ragen/models/resolve.py. `cold_start` takes the
skill of one of them away and leaves its form.
"""
