"""Programs of this repository that are not in the wheel. One more is a module with a `main`, run as a script."""
