"""Ctrl-C, SIGTERM and SIGHUP: the newest whole step is saved, and the resumed run equals the straight one."""

import os
import signal
import subprocess
import sys
import time

import pytest

from ragen.errors import Interrupted, reporting_errors
from ragen.trainer.build import build_trainer
from ragen.trainer.checkpoints.checkpoint import LATEST
from ragen.trainer.endings import signals as module
from ragen.trainer.endings.signals import Signals
from tests.trainer.runs import LAKE, REPOSITORY, Run, finish, has_logged, small_config, start_process, train
from tests.trainer.test_resume import check_same

STEPS = ["trainer.total_training_steps=4", "trainer.save_freq=4", "trainer.test_freq=2"]
PPO, LORA = [], ["lora.rank=4", "actor_rollout_ref.actor.use_kl_loss=True", "actor_rollout_ref.actor.kl_loss_coef=0.1"]


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> Run:
    return train(tmp_path_factory.mktemp("straight"), *STEPS, env=LAKE)


def strike(root, method: str, *, at: int, number: int = signal.SIGTERM, after: bool = False, changes=()) -> str:
    """A run that gets a signal in the `at`-th call of a method of its workers; what it says."""
    trainer = build_trainer(small_config(root, *STEPS, *changes, env=LAKE))
    assert trainer is not None
    call, count = getattr(trainer.workers, method), 0

    def struck(*args, **kwargs):
        nonlocal count
        count += 1
        if count == at and not after:
            os.kill(os.getpid(), number)
        answer = call(*args, **kwargs)
        if count == at and after:
            os.kill(os.getpid(), number)
        return answer

    setattr(trainer.workers, method, struck)
    with pytest.raises(Interrupted) as caught:
        trainer.fit()
    return str(caught.value)


# Rollouts are: validation, step 1, step 2, validation, step 3, ...
MOMENTS = {
    "rollout": ("rollout", 5, False, 2, True),
    "scoring": ("logprobs", 3, False, 2, True),
    "critic": ("update_critic", 3, False, 3, False),
    "between critic and actor": ("update_critic", 2, True, 2, False),
    "actor": ("update_actor", 1, False, 1, False),
    "validation": ("rollout", 4, False, 2, False),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_signal_saves_the_newest_whole_step_and_nothing_is_lost(tmp_path, straight, moment):
    method, at, after, step, is_complete = MOMENTS[moment]
    said = strike(tmp_path, method, at=at, after=after)
    assert said == f"interrupted by SIGTERM: step {step} is saved"
    run = Run(tmp_path)
    assert run.checkpoints == [f"global_step_{step}"]
    assert (run.status["state"], run.status["reason"], run.status["exit_code"]) == ("interrupted", said, 143)
    start = build_trainer(small_config(tmp_path, *STEPS, env=LAKE))
    assert start is not None and start.checkpoints.resumed.is_complete is is_complete
    start.fit()
    check_same(straight, Run(tmp_path), 4)
    assert "timing_s/gen" in Run(tmp_path).metrics[step]  # also where the rollout was before the signal


def test_a_signal_waits_until_a_run_that_is_left_is_saved(tmp_path):
    trainer = build_trainer(small_config(tmp_path, *STEPS, env=LAKE))
    assert trainer is not None and not trainer.checkpoints.is_background
    save = trainer.workers.save

    def struck(role, folder):
        save(role, folder)
        os.kill(os.getpid(), signal.SIGTERM)

    trainer.workers.save = struck
    with pytest.raises(Interrupted), trainer.running():
        trainer.begin()
        trainer.log(trainer.step(1))
    run = Run(tmp_path)
    assert run.status["reason"] == "interrupted by SIGTERM: step 1 is saved"
    assert run.checkpoints == ["global_step_1"] and not list(tmp_path.glob(".*.tmp"))


def test_an_interrupted_run_says_that_it_saves_and_not_what_it_did_before(tmp_path):
    trainer = build_trainer(small_config(tmp_path, *STEPS, "trainer.test_freq=-1", env=LAKE))
    assert trainer is not None
    stages, saved_in = [], []
    save, trainer.timers._on_stage = trainer.workers.save, stages.append

    def watched(role, folder):
        saved_in.append(stages[-1])
        save(role, folder)

    trainer.workers.save = watched
    with trainer.running():
        trainer.begin()
        trainer.log(trainer.step(1))
    assert set(saved_in) == {"save_checkpoint"}


def test_a_signal_in_a_run_with_adapters_changes_nothing(tmp_path):
    straight = train(tmp_path / "straight", *STEPS, *LORA, env=LAKE)
    strike(tmp_path / "run", "rollout", at=3, changes=LORA)
    check_same(straight, train(tmp_path / "run", *STEPS, *LORA, env=LAKE), 4)


@pytest.fixture
def hang_up_is_heard():
    """Where the tests run under nohup, too."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hang_up_is_heard")
def test_without_checkpoints_or_steps_the_message_says_so(tmp_path):
    said = strike(tmp_path / "a", "rollout", at=3, number=signal.SIGHUP, changes=["trainer.save_freq=-1"])
    assert said == "interrupted by SIGHUP: nothing is saved (trainer.save_freq)"
    said = strike(tmp_path / "b", "rollout", at=1, number=signal.SIGINT)
    assert said == "interrupted by SIGINT: no step was done yet"
    assert Run(tmp_path / "b").status["exit_code"] == 130
    assert not (tmp_path / "b" / LATEST).exists()


def test_a_terminated_process_saves_says_so_and_exits_with_the_signal(tmp_path):
    changes = ["trainer.total_training_steps=5000", "trainer.save_freq=5000", "trainer.test_freq=0"]
    changes.append("algorithm.adv_estimator=grpo")
    process = start_process(tmp_path, *changes)
    while not has_logged(tmp_path, 1):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    code, output = finish(process)
    assert code == 128 + signal.SIGTERM, output
    step = int((tmp_path / LATEST).read_text())
    assert f"Interrupted by SIGTERM: step {step} is saved." in output and "Traceback" not in output
    assert max(Run(tmp_path).metrics) in (step, step - 1)


# --- the handler


def test_a_signal_waits_for_work_that_is_held():
    done = []
    with Signals() as signals, pytest.raises(Interrupted) as caught, signals.held():
        with signals.held():
            os.kill(os.getpid(), signal.SIGTERM)
            done.append("inner")
        done.append("outer")
    assert done == ["inner", "outer"]
    assert caught.value.number == signal.SIGTERM


def test_handlers_are_put_back_and_ignored_signals_stay_ignored(monkeypatch):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Signals():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN, "nohup"
            assert signal.getsignal(signal.SIGTERM) not in (signal.SIG_IGN, signal.SIG_DFL)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_same_signal_twice_at_once_is_one():
    """`timeout` signals a process and its group."""
    with Signals(), pytest.raises(Interrupted):
        os.kill(os.getpid(), signal.SIGTERM)
    with Signals() as signals:
        with pytest.raises(Interrupted):
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        signals._came_at = None


def test_a_second_signal_ends_at_once():
    program = """
import os, signal, time
from ragen.trainer.endings import signals
signals.REPEAT_S = 0.0
with signals.Signals() as held, held.held():
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.01)
    print("still here", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    print("never", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == -signal.SIGTERM
    assert done.stdout == "still here\n" and done.stderr.endswith("Ended at once.\n")
    assert module.REPEAT_S == 1.0


def test_the_exit_code_names_the_signal(capsys):
    def ended() -> None:
        error = Interrupted(signal.SIGHUP)
        error.note = "step 3 is saved"
        raise error

    assert reporting_errors(ended) == 129
    assert capsys.readouterr().err == "Interrupted by SIGHUP: step 3 is saved.\n"
