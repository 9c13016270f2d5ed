"""Families of decoders whose layers are described."""

MODEL_TYPES = {"qwen2", "qwen3", "llama"}
"""Families whose layers are read; all are the same decoder up to biases and norms of queries and keys."""
