"""The engine of CUDA graphs and fused kernels."""
