"""`ragen view`."""
