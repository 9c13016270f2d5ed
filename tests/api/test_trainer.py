"""A run in Python is the run of `python train.py`: iterated over, stage by stage, left and resumed."""

import subprocess
import sys
from pathlib import Path

import pytest

import ragen
from ragen.errors import ConfigError, RagenError
from ragen.learners.optimizer import Optimizer
from tests.trainer.runs import BANDIT, Run, overrides, train

STEPS = 4
CHANGES = (f"trainer.total_training_steps={STEPS}", "trainer.save_freq=2", "trainer.max_actor_ckpt_to_keep=9")


def config_of(root: Path, *changes: str) -> ragen.Config:
    return ragen.load_config("base", *overrides(root, *CHANGES, *changes, env=BANDIT))


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> Run:
    """What `python train.py` does."""
    return train(tmp_path_factory.mktemp("straight") / "run", *CHANGES)


def assert_equal(one: Run, other: Run) -> None:
    assert one.outcomes == other.outcomes
    assert one.checkpoints == other.checkpoints
    assert one.tensor_bytes(STEPS) == other.tensor_bytes(STEPS)
    assert one.episodes(STEPS) == other.episodes(STEPS)


def test_a_loop_over_the_steps_equals_train(straight, tmp_path):
    trainer = ragen.Trainer(config_of(tmp_path))
    steps = list(trainer)
    assert [step.number for step in steps] == [1, 2, 3, 4]
    assert steps[-1].metrics == Run(tmp_path).metrics[STEPS]
    assert trainer.ending is not None and trainer.ending.exit_code == 0
    assert Run(tmp_path).status["state"] == "finished"
    assert_equal(Run(tmp_path), straight)


def test_the_stages_of_a_step_equal_train(straight, tmp_path):
    with ragen.Trainer(config_of(tmp_path)) as trainer:
        while not trainer.is_over:
            episodes = trainer.rollout()
            groups = trainer.filter(episodes)
            batch = trainer.score(groups)
            step = trainer.update(batch)
            assert step.metrics["train/batch_size"] == len(groups) * 4
        with pytest.raises(RagenError, match="no further step: all steps are done"):
            trainer.rollout()
    assert_equal(Run(tmp_path), straight)
    assert set(Run(tmp_path).metrics[STEPS]) == set(straight.metrics[STEPS]), "timing metrics included"


def test_a_run_that_is_left_is_saved_and_resumed(straight, tmp_path):
    for step in ragen.Trainer(config_of(tmp_path)):
        if step.number == 1:
            break
    status = Run(tmp_path).status
    assert (status["state"], status["reason"]) == ("interrupted", "left after step 1 (step 1 is saved)")
    assert [step.number for step in ragen.Trainer(config_of(tmp_path))] == [2, 3, 4]
    assert Run(tmp_path).outcomes == straight.outcomes
    assert Run(tmp_path).tensor_bytes(STEPS) == straight.tensor_bytes(STEPS)
    again = ragen.Trainer(config_of(tmp_path))
    assert list(again) == [] and again.ending is not None, "a finished run has no further step"


def ended(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, timeout=240)


LEFT_OPEN = """
import sys
import ragen

steps = iter(ragen.Trainer(ragen.load_config("base", *sys.argv[1:])))
print(next(steps).number)
"""


def test_a_run_that_is_open_when_python_ends_is_saved_and_closed(tmp_path):
    words = overrides(tmp_path / "run", *CHANGES, env=BANDIT)
    done = ended(LEFT_OPEN, *words)
    assert done.returncode == 0 and "1" in done.stdout.splitlines()
    assert "Exception ignored" not in done.stderr and "closing the environments" not in done.stderr
    assert Run(tmp_path / "run").status["reason"] == "left after step 1 (step 1 is saved)"


FORKED = """
import multiprocessing, pathlib, sys
import ragen

config = ragen.load_config("base", *sys.argv[1:])
status = pathlib.Path(config.trainer.default_local_dir) / "status.json"
with ragen.Trainer(config) as trainer:
    before = status.read_bytes()
    child = multiprocessing.get_context("fork").Process(target=int)
    child.start()
    child.join()
    print(child.exitcode, status.read_bytes() == before)
"""


def test_a_forked_process_leaves_the_run_to_its_parent(tmp_path):
    done = ended(FORKED, *overrides(tmp_path, *CHANGES, "trainer.val_before_train=False", "trainer.preflight=False"))
    assert "0 True" in done.stdout.splitlines(), done.stdout + done.stderr


IN_THREAD = """
import sys, threading
import ragen

begun = threading.Event()

def work():
    for step in ragen.Trainer(ragen.load_config("base", *sys.argv[2:])):
        begun.set()
        if sys.argv[1] == "daemon":
            threading.Event().wait()

threading.Thread(target=work, daemon=sys.argv[1] == "daemon").start()
begun.wait()
"""


def test_python_waits_for_the_run_of_a_thread(straight, tmp_path):
    done = ended(IN_THREAD, "thread", *overrides(tmp_path, *CHANGES))
    assert done.returncode == 0 and Run(tmp_path).status["state"] == "finished", done.stderr
    assert_equal(Run(tmp_path), straight)


def test_python_does_not_wait_for_a_daemon_and_leaves_its_run_alone(tmp_path):
    assert ended(IN_THREAD, "daemon", *overrides(tmp_path, *CHANGES)).returncode == 0
    assert Run(tmp_path).status["state"] == "running", "as after a kill"


TWO_OPEN = """
import shutil, sys
import ragen
from ragen.api import trainer as module

open_runs = [iter(ragen.Trainer(ragen.load_config("base", *sys.argv[2:], f"trainer.default_local_dir={root}")))
             for root in sys.argv[1].split(",")]
for steps in open_runs:
    next(steps)
first = list(module._open_trainers)[0].config.trainer.default_local_dir
shutil.rmtree(first)
open(first, "w").close()
"""


def test_a_run_that_cannot_be_saved_as_python_ends_does_not_keep_others_from_it(tmp_path):
    roots = [tmp_path / "one", tmp_path / "two"]
    words = overrides(tmp_path, *CHANGES, "trainer.val_before_train=False", "trainer.preflight=False")
    done = ended(TWO_OPEN, ",".join(map(str, roots)), *words)
    assert "FileError: The checkpoint" in done.stderr
    [saved] = [root for root in roots if root.is_dir()]
    assert Run(saved).status["reason"] == "left after step 1 (step 1 is saved)"


def test_models_that_are_half_updated_are_not_saved(tmp_path, monkeypatch):
    step, steps = Optimizer.step, []

    def fail_half_way(self: Optimizer, training_step: int) -> float:
        steps.append(training_step)
        if steps.count(2) == 2:
            raise MemoryError
        return step(self, training_step)

    monkeypatch.setattr(Optimizer, "step", fail_half_way)
    with ragen.Trainer(config_of(tmp_path, "ppo_mini_batch_size=2", "trainer.save_freq=9")) as trainer:
        trainer.update(trainer.score(trainer.filter(trainer.rollout())))
        batch = trainer.score(trainer.filter(trainer.rollout()))
        with pytest.raises(MemoryError):
            trainer.update(batch)
    reason = "left after step 1 (nothing is saved, because the models are in the middle of step 2)"
    assert Run(tmp_path).status["reason"] == reason and Run(tmp_path).checkpoints == []


def test_an_error_inside_the_loop_ends_the_run(tmp_path):
    with pytest.raises(ZeroDivisionError):
        with ragen.Trainer(config_of(tmp_path, "trainer.val_before_train=False")) as trainer:
            trainer.rollout()
            raise ZeroDivisionError("mine")
    assert Run(tmp_path).status["state"] == "failed" and "mine" in Run(tmp_path).status["reason"]


def test_stages_in_another_order_are_refused(tmp_path):
    trainer = ragen.Trainer(config_of(tmp_path, "trainer.val_before_train=False", "trainer.preflight=False"))
    with pytest.raises(RagenError, match=r"is not open\. Use it in `with"):
        trainer.rollout()
    with trainer:
        with pytest.raises(RagenError, match=r"score\(\) comes after rollout\(\)"):
            trainer.score([])
        trainer.rollout()
        with pytest.raises(RagenError, match="Step 1 is under way"):
            trainer.rollout()
        with pytest.raises(RagenError, match=r"score\(\) comes after filter\(\)"):
            trainer.score([])
        with pytest.raises(RagenError, match="open already"):
            trainer.__enter__()


def test_what_is_changed_between_the_stages_counts(straight, tmp_path):
    with ragen.Trainer(config_of(tmp_path, "trainer.total_training_steps=1")) as trainer:
        groups = trainer.filter(trainer.rollout())
        assert trainer.score([]) is None, "no groups are no batch"
        batch = trainer.score(groups[:1])
        assert batch is not None and batch.advantages is not None
        batch.advantages = batch.advantages * 0
        step = trainer.update(batch)
    assert step.metrics["train/batch_size"] == 4
    assert step.metrics["actor/pg_loss"] == 0 != straight.metrics[1]["actor/pg_loss"]


def test_a_mistake_is_found_before_anything_is_loaded(tmp_path):
    with pytest.raises(ConfigError, match="there is no module absent"):
        ragen.Trainer(config_of(tmp_path, "algorithm.adv_estimator=absent.adv:loo"))
    with pytest.raises(ConfigError, match=r"trainer\.seeds is 3: that is several runs"):
        ragen.Trainer(config_of(tmp_path, "trainer.seeds=3"))
    assert not any(tmp_path.iterdir())
