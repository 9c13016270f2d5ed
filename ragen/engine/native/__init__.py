"""The engine in plain PyTorch: any Hugging Face decoder, on the actor's own weights, on any device.

build.py picks the graph engine instead where that can run the model. Another family of models needs no code:
self_test.py asks each model that has been loaded. Add it to tests/engine/families.py, which compares its replies with
those of `generate`.
"""
