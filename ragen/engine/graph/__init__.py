"""The native engine at the pace of a GPU: captured CUDA graphs, pages of cache, kernels of ragen.modeling.

One more family of models: describe it in ragen/modeling/families.py; fused.py reads its layers.
"""
