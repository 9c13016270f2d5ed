"""The training loop, and everything that surrounds it in a run.

train.py is what `ragen train` does: start.py plans, build.py builds, agent_trainer.py is the loop. Its stages and
companions have a file each: scoring, validation (held_out), early_stop, recorder, checkpointer, gradient_runs. On disk:
checkpoint (with checksums), folder, changes. How a run ends: signals, trouble, ending. memory.py estimates before
anything is loaded; verify_resume.py proves that a killed run resumes as if nothing had happened.

A new stage of a step is a method of AgentTrainer that train_step calls; its work is an object of its own. What must
survive a resume has `to_json` and `load` and is one of the `parts` of the Checkpointer. A new early stop is a rule of
early_stop.py with a sentence and a remedy in ending.py. A key that a resumed run may change belongs to MAY_CHANGE in
changes.py.
"""
