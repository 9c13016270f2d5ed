"""vLLM as an engine."""
