"""vLLM as an engine, with the sampling and stop rules of the native one; only this folder imports vLLM."""
