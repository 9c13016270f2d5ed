"""Running any Hugging Face decoder; nothing here knows reinforcement learning.

load.py makes models and tokenizers, lora.py adapters, finite.py checks and writes tensors, host_memory.py knows what
the CPU has left. packing.py puts sequences into one row, and passes.py is the generator through which a model reads
them; slices.py tells the gradients of several groups in a row apart. team.py says whether one process does that or
several. attention/ and kernels/ hold what models are made to call instead of their own functions, families.py says
which may.

To add a model family, write a line of FAMILIES in families.py; any other family runs as Hugging Face wrote it. Imports
of this package need no Triton; those of its kernels do.
"""
