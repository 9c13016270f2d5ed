"""Supervised training on demonstrations of the solver.

`data` makes and keeps the demonstrations, `finetune` trains in one process and `ray_finetune` on several, `command` has
the stages of a run. One more key is a field of `config.SftConfig` and a line of config/sft/sft.yaml; a key that the
weights do not depend on also stands in `command.MAY_CHANGE`.
"""
