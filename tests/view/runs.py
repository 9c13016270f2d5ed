"""Small run directories, written as runs write them."""

from pathlib import Path

from ragen.tracking.rundir import RunDir
from ragen.types import Episode, Status, Turn

CONFIG = """
model_path: tiny
algorithm: {adv_estimator: grpo}
trainer: {total_training_steps: 10, project_name: ragen, experiment_name: a}
es_manager:
  train: {env_configs: {tags: [FrozenLake], n_groups: [4]}}
  val: {group_size: 1, env_configs: {tags: [FrozenLake], n_groups: [16]}}
"""


def write_run(folder: Path, successes: tuple[float, ...] = (0.25, 0.5), state: str = "finished") -> Path:
    """A training that validated at every step, one second each."""
    run = RunDir(folder)
    run.write_config(CONFIG)
    for step, success in enumerate(successes):
        run.log(step, {"val-env/FrozenLake/success": success, "timing_s/step": 1.0})
    run.write_status(state, "all steps are done" if state == "finished" else "", step=len(successes) - 1)
    return folder


def turn(text: str = "<think>go</think><answer>Up</answer>", **changes) -> Turn:
    values = {
        "user": "Turn 1:\nState:\nP_\n_G\n",
        "observation": "P_\n_G",
        "prompt_ids": [1, 2, 3],
        "response_ids": [4, 5],
        "logprobs": [-0.5, -1.5],
        "entropies": [0.25, 0.75],
        "text": text,
        "stop_reason": "stop",
        "thought": "go",
        "actions": ["Up"],
        "executed": ["Up"],
    }
    return Turn(**(values | changes))


def episode(group: int = 0, member: int = 0, *, reward: float = 1.0, **changes) -> Episode:
    """One turn; solved where it earned something."""
    values = {
        "tag": "FrozenLake",
        "env_type": "frozen_lake",
        "group_id": group,
        "member": member,
        "seed": 100 + group,
        "level": f"level {group}",
        "system": "You play.",
        "turns": [turn(reward=reward)],
        "status": Status.SOLVED if reward > 0 else Status.FAILED,
        "final_observation": "√_\n_G",
    }
    return Episode(**(values | changes))
