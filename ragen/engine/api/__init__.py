"""Servers that speak the OpenAI or Anthropic protocol as an engine."""
