"""What `python train.py` does around a trainer: restarts, and runs that have come to their end."""

import pytest

from ragen.errors import WorkerError
from ragen.trainer.train import train, with_restarts
from tests.trainer.runs import Run, small_config

GRPO = "algorithm.adv_estimator=grpo"


def failing(num_failures: int):
    """An attempt that loses a worker so many times, and how often it was made."""
    attempts: list[int] = []

    def attempt() -> int:
        attempts.append(len(attempts))
        if len(attempts) <= num_failures:
            raise WorkerError("rank 1 died")
        return len(attempts)

    return attempt, attempts


def test_a_lost_worker_is_survived_as_often_as_allowed(capsys):
    attempt, attempts = failing(2)
    assert with_restarts(3, attempt) == 3 and attempts == [0, 1, 2]
    said = capsys.readouterr().err
    assert said.count("error: rank 1 died") == 2 and "Restarting (1 restarts left)." in said


def test_without_restarts_a_lost_worker_ends_the_run():
    attempt, attempts = failing(1)
    with pytest.raises(WorkerError):
        with_restarts(0, attempt)
    assert attempts == [0]


def test_training_again_repeats_how_the_run_ended(tmp_path, capsys):
    config = small_config(tmp_path, GRPO, "trainer.total_training_steps=1", "trainer.test_freq=0")
    assert train(config) == 0
    before = Run(tmp_path).metrics
    capsys.readouterr()
    assert train(config) == 0
    said = capsys.readouterr().out
    assert "Nothing to do" in said and "Finished at step 1 of 1: all steps are done." in said
    assert Run(tmp_path).metrics == before
