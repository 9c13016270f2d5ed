"""Checkpoints: `checkpointer` decides when and what, `checkpoint` is the folder on disk, `checksums` prove it whole.

`background` writes beside training where the CPU has room for a copy. `verify_resume` proves that a killed run
resumes as if nothing had happened. What must survive a resume has `to_json` and `load` and is one of the `parts` of the
Checkpointer.
"""
