"""When a run in progress writes a checkpoint, which one is the best, and what a signal saves."""

import resource
from pathlib import Path
from threading import Event, Timer

import pytest

from ragen.config import Config
from ragen.errors import ConfigError, FileError, NotFinite
from ragen.trainer.build import build_trainer
from ragen.trainer.checkpoints.checkpoint import BEST
from ragen.trainer.checkpoints.checkpointer import Checkpointer, Point, StepOutcome
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
    writer.begin_update(5)
    assert writer.save_newest() == "nothing is saved, because the models are in the middle of step 5"
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


# --- written beside training


class Copier(Writer):
    """Workers whose roles are copied first; the disk is slow until `go`."""

    def __init__(self, config: Config, go: Event, *, need: int = 10, moments: int = 0) -> None:
        super().__init__(config)
        self.go, self.need, self.moments, self.value, self.is_reserved = go, need, moments, "first", False
        self.error: Exception | None = None

    def snapshot_bytes(self) -> int:
        return self.need

    def moments_to_come(self) -> int:
        return self.moments

    def reserve_snapshots(self) -> None:
        self.is_reserved = True

    def snapshot(self, role: str):
        value = self.value
        if self.error is not None:
            raise self.error

        def write(folder: Path) -> None:
            self.go.wait()
            (folder / "weights").write_text(value)

        return write


LARGEST = 150_000
"""Bytes: less than the weights of the embedded model, more than what a run writes beside them."""


def copying(root: Path, go: Event, *, need: int = 10, moments: int = 0) -> tuple[Checkpointer, Copier, list[str]]:
    writer, said = checkpointer(root, "trainer.save_freq=1", "trainer.total_training_steps=9"), []
    workers = writer.workers = Copier(small_config(root, GRPO), go, need=need, moments=moments)  # type: ignore[assignment]
    writer.announce = said.append
    writer.prepare(last_step=9)
    return writer, workers, said


def point(writer: Checkpointer, step: int) -> Point:
    writer.newest = writer.point_of(StepOutcome(step=step, metrics={}))
    return writer.newest


def test_a_checkpoint_counts_when_it_is_whole_and_holds_what_was_then(tmp_path):
    go = Event()
    writer, workers, said = copying(tmp_path, go)
    assert workers.is_reserved and said == []
    first = point(writer, 1)
    writer.save(first)
    workers.value = "later"
    writer.check()
    assert not first.is_saved and not (tmp_path / "global_step_1").exists() and writer.take_seconds() is None
    go.set()
    assert writer.save_newest() == "step 1 is saved" and first.is_saved
    assert (tmp_path / "global_step_1" / "actor" / "weights").read_text() == "first"
    assert writer.take_seconds() is not None and writer.take_seconds() is None


def test_a_second_save_waits_for_the_first(tmp_path):
    go = Event()
    writer, _, _ = copying(tmp_path, go)
    first, second = point(writer, 1), point(writer, 2)
    writer.save(first)
    Timer(0.2, go.set).start()
    writer.save(second)
    assert first.is_saved, "its memory is taken by the second"
    writer.wait()
    assert second.is_saved and (tmp_path / "latest_checkpointed_iteration.txt").read_text() == "2\n"


def test_without_memory_training_waits_and_says_why(tmp_path):
    writer, workers, said = copying(tmp_path, Event(), need=10**15)
    assert not workers.is_reserved and not writer.is_background
    [line] = said
    assert line.startswith("Training waits while checkpoints are written: a copy takes 931322.6 GiB of the CPU's")
    saved = point(writer, 1)
    writer.save(saved)
    assert saved.is_saved


def test_memory_that_training_has_yet_to_take_is_not_free(tmp_path):
    _, workers, [line] = copying(tmp_path, Event(), moments=10**15)
    assert not workers.is_reserved and "a copy takes 0.0 GiB" in line and "where 931323.6 GiB are wanted" in line


def saved_while_training_waits(writer: Checkpointer, step: int) -> bool:
    saved = point(writer, step)
    writer.save(saved)
    return saved.is_saved


def test_memory_that_is_gone_by_the_first_save_makes_training_wait(tmp_path):
    writer, workers, said = copying(tmp_path, Event())
    assert writer.is_background and said == []
    workers.need = 10**15
    assert saved_while_training_waits(writer, 1) and saved_while_training_waits(writer, 2)
    assert len(said) == 1 and said[0].startswith("Training waits while checkpoints are written: a copy takes 931322.6 ")


def test_copies_that_have_their_memory_ask_for_none(tmp_path):
    go = Event()
    writer, workers, said = copying(tmp_path, go)
    workers.need, workers.moments = 0, 10**15
    first = point(writer, 1)
    writer.save(first)
    assert not first.is_saved and said == []
    go.set()
    writer.wait()


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_a_copy_that_fails_is_announced_once_and_training_waits(tmp_path, error):
    writer, workers, said = copying(tmp_path, Event())
    workers.error = error
    assert saved_while_training_waits(writer, 1) and saved_while_training_waits(writer, 2)
    assert (tmp_path / "global_step_2" / "actor" / "weights").read_text() == "actor"
    assert len(said) == 1 and "there is no memory for a copy (" + type(error).__name__ in said[0]


def test_models_that_are_not_finite_are_refused_beside_training_too(tmp_path):
    writer, workers, said = copying(tmp_path, Event())
    workers.error = NotFinite("actor/model.safetensors")
    with pytest.raises(NotFinite):
        writer.save(point(writer, 1))
    assert said == [] and writer.is_background


@pytest.mark.parametrize(
    ("change", "last_step", "is_reserved"),
    [("trainer.save_freq=3", 3, False), ("trainer.save_freq=3", 4, True), ("trainer.keep_best=True", 1, False)],
)
def test_memory_is_taken_where_steps_follow_a_save(tmp_path, change, last_step, is_reserved):
    writer = checkpointer(tmp_path, "trainer.total_training_steps=9", "trainer.test_freq=1", change)
    workers = writer.workers = Copier(small_config(tmp_path, GRPO), Event())  # type: ignore[assignment]
    writer.prepare(last_step=last_step)
    assert writer.is_background is workers.is_reserved is is_reserved


def test_memory_of_copies_on_a_cpu_is_taken_by_the_first_save(tmp_path):
    trainer = build_trainer(small_config(tmp_path, "trainer.save_freq=1", "trainer.total_training_steps=3"))
    assert trainer is not None
    with trainer.running():
        trainer.begin()
        workers, counts = trainer.workers, []
        for step in trainer.steps_left:
            counts.append((bool(workers.snapshot_bytes()), bool(workers.moments_to_come())))
            trainer.log(trainer.step(step))
    assert trainer.checkpoints.is_background and counts == [(True, True), (False, False), (False, False)]


@pytest.mark.parametrize(
    ("error", "said"),
    [(MemoryError(), "MemoryError"), (FileError("full"), "full"), (KeyError("a"), "KeyError: 'a'")],
)
def test_an_error_of_a_checkpoint_is_told_even_without_a_text(tmp_path, error, said):
    def fail() -> None:
        raise error

    writer = checkpointer(tmp_path)
    writer._writing.begin(fail)
    assert writer.settle() == said and writer.settle() == ""


def test_a_checkpoint_that_finds_no_room_is_reported_by_the_next_step(tmp_path):
    """Files may not grow as large as the weights, from the second step on: a full disk with another errno."""
    trainer = build_trainer(small_config(tmp_path, GRPO, "trainer.save_freq=1", "trainer.total_training_steps=9"))
    assert trainer is not None
    limit, snapshot = resource.getrlimit(resource.RLIMIT_FSIZE), trainer.workers.snapshot

    def on_full_disk(role: str):
        write = snapshot(role)

        def written(folder: Path) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST, limit[1]))
            try:
                write(folder)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limit)

        return written if folder_of(2) else write

    def folder_of(step: int) -> bool:
        return trainer.checkpoints.newest is not None and trainer.checkpoints.newest.step == step

    trainer.workers.snapshot = on_full_disk
    with pytest.raises(FileError, match=r"global_step_2 cannot be written: .*are whole\. Free some"):
        trainer.fit()
    run = Run(tmp_path)
    assert run.checkpoints == ["global_step_1"] and run.status["state"] == "failed"
    assert max(run.metrics) in (1, 2) and not list(tmp_path.glob(".*.tmp"))
