"""The training loop, and everything that surrounds it in a run.

train.py is what `ragen train` does: starting/ plans, build.py builds, agent_trainer.py is the loop. Its stages and
companions have a file each: scoring, validation (held_out), levels, refill, incentives, recorder, gradient_runs, card.
checkpoints/ saves and resumes, endings/ stops and reports.

A new stage of a step is a method of AgentTrainer that train_step calls; its work is an object of its own.
"""
