"""The factory of the embedded models: `python -m tools.embedded_models.make`, or `make model`.

cold_start.py makes models from one of them that have its form and none of its skill. One more model is a recipe in make.RECIPES and a row of TINY_FAMILIES in ragen/models/resolve.py.
"""
