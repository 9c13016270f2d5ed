"""GPU kernels, one file for each idea, forward and backward together. Importing its modules needs Triton.

norm, activation, rotary and embedding are what a decoder layer does beside matrix products; attention and sampling
read the pages and the state of sessions (session.py); head is the log-probs of the output layer. What several kernels
need is a `triton.jit` function of its own: `normed` and `rotated` are used in the attention of the engine as well.

To add one, put the kernel and the function that launches it into the file of its idea; a launch that differs (few rows
of a decode step, many of an update) passes other block sizes to the same kernel. Test it in tests/modeling/kernels,
where Triton's interpreter runs it without a GPU.
"""
