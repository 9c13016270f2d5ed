"""Programs of this repository that are not in the wheel."""
