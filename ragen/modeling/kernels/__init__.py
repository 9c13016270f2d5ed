"""GPU kernels, forward and backward together. Importing its modules needs Triton."""
