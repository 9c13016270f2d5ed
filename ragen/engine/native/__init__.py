"""The engine in plain PyTorch."""
