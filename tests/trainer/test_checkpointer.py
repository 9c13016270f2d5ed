"""When a run in progress writes a checkpoint, which one is the best, and what a signal saves."""

from pathlib import Path

import pytest

from ragen.config import Config
from ragen.errors import ConfigError
from ragen.trainer.build import build_trainer
from ragen.trainer.checkpoint import BEST
from ragen.trainer.checkpointer import Checkpointer, StepOutcome
from ragen.trainer.held_out import PlayedLevels
from tests.trainer.runs import Run, small_config

GRPO = "algorithm.adv_estimator=grpo"


class Writer:
    """Workers that save one small file for each role."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def save(self, role: str, folder: Path) -> None:
        (folder / "weights").write_text(role)


class Counter:
    """A part of the trainer with a state."""

    def __init__(self, value: int) -> None:
        self.value = value

    def to_json(self) -> int:
        return self.value

    def load(self, state: int, /) -> None:
        self.value = state


def checkpointer(root: Path, *changes: str, value: int = 0, start_step: int = 0) -> Checkpointer:
    config = small_config(root, GRPO, *changes)
    return Checkpointer(
        config.trainer,
        Writer(config),  # type: ignore[arg-type]
        facts={"train_seed": 7},
        parts={"counter": Counter(value)},
        played=PlayedLevels(),
        start_step=start_step,
        describe=lambda point: f"card of step {point.step}\n",
    )


def test_what_is_saved_is_what_a_resumed_run_continues(tmp_path):
    first = checkpointer(tmp_path, value=5)
    outcome = StepOutcome(step=2, metrics={"actor/lr": 0.5}, stop=None, num_tokens=9, is_complete=True)
    point = first.point_of(outcome)
    first.save(point)
    resumed = checkpointer(tmp_path, start_step=2)
    resumed.load(point.state)
    assert resumed.resumed == outcome
    assert [part.to_json() for part in resumed.parts.values()] == [5]
    assert point.state["train_seed"] == 7 and resumed.save_newest() == "step 2 is saved"


def test_a_signal_saves_the_newest_point_once(tmp_path):
    assert checkpointer(tmp_path, "trainer.save_freq=-1").save_newest() == "nothing is saved (trainer.save_freq)"
    assert checkpointer(tmp_path, start_step=3).save_newest() == "no step was done since 3"
    writer = checkpointer(tmp_path)
    assert writer.save_newest() == "no step was done yet"
    assert writer.last_good() == "No checkpoint was saved before."
    writer.newest = writer.point_of(StepOutcome(step=4, metrics={}))
    assert writer.save_newest() == writer.save_newest() == "step 4 is saved"
    assert writer.last_good() == f"The last good checkpoint is {tmp_path / 'global_step_4'}."


def test_a_checkpoint_is_due_at_its_interval_and_at_the_last_step(tmp_path):
    writer = checkpointer(tmp_path, "trainer.save_freq=2", "trainer.total_training_steps=5")
    assert [step for step in range(1, 6) if writer.is_due(step)] == [2, 4, 5]


def test_the_mean_over_environments_decides_which_validation_is_the_best(tmp_path):
    writer = checkpointer(tmp_path, "trainer.keep_best=True", "trainer.test_freq=1", "trainer.save_freq=1")
    assert not writer.is_best(0, {"train/A/success": 1.0})
    assert writer.is_best(1, {"val-env/A/success": 0.2, "val-env/B/success": 0.4})
    assert not writer.is_best(2, {"val-env/A/success": 0.6, "val-env/B/success": 0.0})
    assert writer.is_best(3, {"val-env/A/success": 0.4, "val-env/B/success": 0.4})
    assert writer.best == {"step": 3, "success": 0.4}


SUCCESS = {0: 0.2, 1: 0.4, 2: 0.1, 3: 0.6, 4: 0.5}


def run_with_success(root: Path, *changes: str, success=SUCCESS, num_steps: int = 4) -> Run:
    """A run whose validations succeed as given."""
    changes = (
        GRPO,
        "trainer.test_freq=1",
        "trainer.save_freq=4",
        f"trainer.total_training_steps={num_steps}",
        *changes,
    )
    trainer = build_trainer(small_config(root, *changes))
    assert trainer is not None
    play = trainer.validation
    trainer.validation = lambda step: play(step) | {"val-env/Bandit/success": success[step]}
    trainer.fit()
    return Run(root)


def test_the_checkpoint_with_the_best_validation_is_kept(tmp_path):
    run = run_with_success(tmp_path, "trainer.keep_best=True")
    assert run.checkpoints == ["global_step_3", "global_step_4"]
    assert (tmp_path / BEST).read_text() == "3\n"
    longer = {"success": SUCCESS | {5: 0.6, 6: 0.55}, "num_steps": 6}
    run = run_with_success(tmp_path, "trainer.keep_best=True", **longer)
    assert run.checkpoints == ["global_step_3", "global_step_6"], "0.6 again is no improvement, also after a resume"


def test_by_default_only_the_newest_is_kept(tmp_path):
    assert run_with_success(tmp_path).checkpoints == ["global_step_4"]
    assert not (tmp_path / BEST).exists()


def test_keeping_the_best_needs_validations_and_checkpoints(tmp_path):
    for change in ("trainer.save_freq=-1", "trainer.test_freq=0"):
        with pytest.raises(ConfigError, match="keep_best=True saves after validations"):
            small_config(tmp_path, "trainer.keep_best=True", change)
