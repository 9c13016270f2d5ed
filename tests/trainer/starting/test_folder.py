"""The folder of a run: one writer, nothing deleted, and what belongs to others stays."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ragen.errors import ConfigError
from ragen.tracking.lock import run_lock
from ragen.trainer.build import build_trainer
from ragen.trainer.checkpoints.checkpoint import LATEST, find_resume
from ragen.trainer.starting import folder
from tests.trainer.runs import REPOSITORY, Run, finish, has_logged, kill_when, small_config, start_process, train

GRPO = "algorithm.adv_estimator=grpo"


def fill(root: Path, *steps: int) -> None:
    """What a run leaves behind."""
    for step in steps:
        (root / f"global_step_{step}" / "actor").mkdir(parents=True)
    (root / LATEST).write_text(f"{max(steps)}\n")
    (root / "metrics.jsonl").write_text('{"step": 1}\n')
    (root / "episodes").mkdir()


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


# --- moving aside


def test_what_a_former_run_left_is_moved_aside_and_what_is_not_of_a_run_stays(tmp_path):
    root = tmp_path / "run"
    fill(root, 2, 4)
    (root / "notes.md").write_text("mine")
    moved_to = folder.take_over(root, None, is_branch=False)
    assert names(root) == ["notes.md"]
    [aside] = tmp_path.glob("run.20*")
    assert names(aside) == ["episodes", "global_step_2", "global_step_4", LATEST, "metrics.jsonl"]
    assert moved_to == aside


def test_two_moves_in_one_second_have_two_names(tmp_path, monkeypatch):
    monkeypatch.setattr(folder.time, "strftime", lambda form: form.replace("%Y%m%d_%H%M%S", "20260101_000000"))
    root = tmp_path / "run"
    for _ in range(2):
        fill(root, 1)
        folder.take_over(root, None, is_branch=False)
    assert names(tmp_path) == ["run", "run.20260101_000000", "run.20260101_000000_2"]
    assert folder.take_over(root, None, is_branch=False) is None, "there is nothing left"


def test_a_folder_that_cannot_be_moved_says_what_to_do(tmp_path, monkeypatch):
    fill(tmp_path / "run", 1)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder.shutil, "move", full)
    with pytest.raises(ConfigError, match=r"cannot be moved to .*No space left on device.*trainer.experiment_name"):
        folder.take_over(tmp_path / "run", None, is_branch=False)


def test_only_what_a_run_was_writing_is_removed(tmp_path):
    fill(tmp_path, 1)
    own = [".global_step_6.123.tmp", ".outdated_6.123.tmp", ".status.json.123.tmp", f".{LATEST}.9.tmp"]
    own += ["episodes/.train_step_3.jsonl.123.tmp", "episodes/.val_step_3.jsonl.gz.123.tmp"]
    others = [".notes.tmp", ".status.json.tmp", "thesis/.chapter.1.tmp", "episodes/.mine.1.tmp"]
    (tmp_path / "thesis").mkdir()
    for name in (*own, *others):
        (tmp_path / name).write_text("half")
    folder.clear_half_written(tmp_path)
    left = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob(".*.tmp")]
    assert sorted(left) == sorted(others)


def test_continuing_from_an_older_checkpoint_moves_the_newer_ones_aside(tmp_path):
    root = tmp_path / "run"
    fill(root, 1, 2, 3)
    folder.take_over(root, root / "global_step_1", is_branch=True)
    assert find_resume("auto", None, root) == root / "global_step_1"
    [aside] = tmp_path.glob("run.*")
    assert names(aside) == ["global_step_2", "global_step_3"]


def test_continuing_from_the_newest_moves_nothing(tmp_path):
    """A checkpoint that a kill left without its name is written again."""
    root = tmp_path / "run"
    fill(root, 1, 2)
    folder.take_over(root, root / "global_step_1", is_branch=False)
    assert names(tmp_path) == ["run"]
    assert find_resume("auto", None, root) == root / "global_step_1"


# --- the lock


def test_a_second_process_is_refused_by_name_before_it_touches_anything(tmp_path):
    process = start_process(tmp_path, GRPO, "trainer.total_training_steps=500", "trainer.test_freq=0")
    seen: dict[str, object] = {}

    def is_second_refused() -> bool:
        if not has_logged(tmp_path, 1):
            return False
        config = (tmp_path / "config.yaml").read_bytes()
        for change in ("seed.train=77", "trainer.resume_mode=disable"):
            code, output = finish(start_process(tmp_path, GRPO, change))
            seen[change] = code, output
        seen["config"] = (tmp_path / "config.yaml").read_bytes() == config
        seen["state"] = Run(tmp_path).status["state"]
        return True

    assert kill_when(process, is_second_refused)
    for change in ("seed.train=77", "trainer.resume_mode=disable"):
        code, output = seen[change]  # type: ignore[misc]
        assert code == 1
        assert f"is in use: process {process.pid} on {socket.gethostname()} writes into it since 20" in output
        assert "Traceback" not in output
    assert seen["config"] is True and seen["state"] == "running"
    assert list(tmp_path.parent.glob(f"{tmp_path.name}.*")) == [], "nothing was moved"
    train(tmp_path, GRPO)  # a killed process holds nothing


def test_the_lock_is_given_back_with_the_end_of_a_run_and_when_it_cannot_be_built(tmp_path):
    program = (
        f"from pathlib import Path; from ragen.tracking.lock import run_lock\nwith run_lock(Path('{tmp_path}')): pass"
    )

    def is_free() -> bool:
        done = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True)
        return done.returncode == 0

    train(tmp_path, GRPO)
    assert is_free()
    assert build_trainer(small_config(tmp_path, GRPO)) is None
    assert is_free()
    with pytest.raises(ConfigError):
        build_trainer(small_config(tmp_path, GRPO, "seed.train=5"))
    assert is_free()
    with run_lock(tmp_path):
        assert not is_free()
