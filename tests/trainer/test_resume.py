"""A run that is killed and resumed equals the run that was not."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from ragen.trainer.build import build_trainer
from tests.threads import num_threads
from tests.trainer.runs import (
    BANDIT,
    LAKE,
    REPOSITORY,
    Run,
    finish,
    has_logged,
    kill_when,
    overrides,
    refused,
    small_config,
    snapshot,
    start_process,
    train,
)

ROLLOUT = "actor_rollout_ref.rollout"
GRPO = "algorithm.adv_estimator=grpo"
KINDS = {
    "ppo": [],
    "grpo": [GRPO],
    "lora": ["lora.rank=4", "actor_rollout_ref.actor.use_kl_loss=True", "actor_rollout_ref.actor.kl_loss_coef=0.1"],
    "filter": [GRPO, f"{ROLLOUT}.rollout_filter_value=0.6", "ppo_mini_batch_size=4"],
    "empty": [GRPO, f"{ROLLOUT}.rollout_filter_include_zero=False", f"{ROLLOUT}.rollout_filter_empty_stop_steps=0"],
    "adaptive": [
        "algorithm.use_kl_in_reward=True",
        "algorithm.kl_ctrl.type=adaptive",
        "algorithm.kl_ctrl.kl_coef=0.1",
        "algorithm.kl_ctrl.horizon=100",
    ],
    "schedule": [
        GRPO,
        "actor_rollout_ref.actor.optim.lr_scheduler_type=cosine",
        "actor_rollout_ref.actor.optim.lr_warmup_steps=2",
        "actor_rollout_ref.actor.shuffle=True",
        "ppo_mini_batch_size=4",
    ],
    "warm-up": ["trainer.critic_warmup=4"],
    "levels": [
        GRPO,
        "es_manager.train.levels=pass_rate",
        "es_manager.train.level_pool.size=5",
        "es_manager.train.level_pool.renew_after=1",
        "es_manager.train.refill=2",
        "actor_rollout_ref.rollout.rollout_filter_include_zero=False",
    ],
    "diagnostics": [
        GRPO,
        "collapse_detection.compute_freq=1",
        "trainer.gradient_analysis_mode=True",
        "trainer.gradient_analysis_every=1",
        "trainer.gradient_analysis_env_groups=3",
    ],
}


def episode_bytes(run: Run) -> dict[str, bytes]:
    """Every file of episodes, with the advantages in it."""
    return {file.name: file.read_bytes() for file in sorted((run.path / "episodes").glob("*.gz"))}


def check_same(straight: Run, resumed: Run, step: int) -> None:
    assert resumed.outcomes == straight.outcomes
    assert resumed.tensor_bytes(step) == straight.tensor_bytes(step)
    assert episode_bytes(resumed) == episode_bytes(straight)
    assert resumed.status["state"] == straight.status["state"]
    litter = [path for path in resumed.path.rglob(".*") if path.name.endswith(".tmp")]
    assert litter == []


def interrupted(root, step: int, *changes: str, env=LAKE) -> None:
    """The first steps of a run, up to a failure in the step after `step`."""
    trainer = build_trainer(small_config(root, *changes, env=env))
    assert trainer is not None
    train_step = trainer.train_step

    def fail_later(now: int):
        if now > step:
            raise InterruptedError("the power is gone")
        return train_step(now)

    trainer.train_step = fail_later
    with pytest.raises(InterruptedError):
        trainer.fit()


@pytest.mark.parametrize(
    ("kind", "threads"),
    [*((kind, 1) for kind in KINDS), *((kind, 2) for kind in ("ppo", "lora", "diagnostics"))],
)
def test_a_resumed_run_equals_the_straight_one(tmp_path, kind, threads):
    changes = [*KINDS[kind], "trainer.total_training_steps=4", "trainer.save_freq=2", "trainer.test_freq=2"]
    with num_threads(threads):
        straight = train(tmp_path / "straight", *changes, env=LAKE)
        interrupted(tmp_path / "resumed", 3, *changes)  # step 3 is logged and not saved: it is taken again
        resumed = train(tmp_path / "resumed", *changes, env=LAKE)
    check_same(straight, resumed, 4)
    dropped = (tmp_path / "resumed" / "metrics.dropped.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in dropped] == [3]


def test_a_run_with_a_drawn_seed_keeps_it(tmp_path):
    changes = ["seed.train=null", GRPO, "trainer.total_training_steps=3", "trainer.save_freq=1"]
    interrupted(tmp_path, 2, *changes)
    seed = Run(tmp_path).episodes(1)[0].seed
    assert train(tmp_path, *changes, env=LAKE).episodes(3)[0].seed == seed + 2 * 3


# --- real kills


KILLED = [*KINDS["ppo"], "trainer.total_training_steps=3", "trainer.save_freq=1", "trainer.test_freq=2"]


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> Run:
    return train(tmp_path_factory.mktemp("straight"), *KILLED)


def test_a_killed_run_resumes_as_if_nothing_had_happened(tmp_path, straight):
    assert kill_when(start_process(tmp_path, *KILLED), lambda: has_logged(tmp_path, 1))
    assert Run(tmp_path).status["state"] == "running"
    code, output = finish(start_process(tmp_path, *KILLED))
    assert code == 0, output
    check_same(straight, Run(tmp_path), 3)


def test_with_two_threads_a_killed_run_equals_that_of_another_process(tmp_path):
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    code, output = finish(start_process(straight, *KILLED, env=LAKE, threads=2))
    assert code == 0, output
    assert kill_when(start_process(killed, *KILLED, env=LAKE, threads=2), lambda: has_logged(killed, 1))
    code, output = finish(start_process(killed, *KILLED, env=LAKE, threads=2))
    assert code == 0, output
    check_same(Run(straight), Run(killed), 3)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kills_at_any_moment_change_nothing(tmp_path, straight):
    """A run that is killed again and again, at random moments and while a checkpoint is being written."""
    rng = random.Random(5)
    moments = {
        "after the first validation": lambda root: has_logged(root, 0),
        "while a checkpoint is written": lambda root: any(root.glob(".global_step_*.tmp")),
        "when a checkpoint has its name": lambda root: any(root.glob("global_step_*")),
        "when the newest checkpoint is named": lambda root: (root / "latest_checkpointed_iteration.txt").exists(),
    }
    num_kills = 0
    for name, is_time in moments.items():
        for delay in (0.0, 0.02):
            root = tmp_path / f"{num_kills}"

            def is_now(is_time=is_time, delay=delay, root=root) -> bool:
                return is_time(root) and (time.sleep(delay) is None)

            num_kills += kill_when(start_process(root, *KILLED), is_now)
            for _ in range(2):  # and a second time, anywhere
                began = time.monotonic()
                wait = rng.uniform(2.5, 7)
                num_kills += kill_when(
                    start_process(root, *KILLED), lambda began=began, wait=wait: time.monotonic() - began > wait
                )
            code, output = finish(start_process(root, *KILLED))
            assert code == 0, f"{name}: {output}"
            check_same(straight, Run(root), 3)
            shutil.rmtree(root)
    assert num_kills >= 8


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_kill_around_the_name_of_the_newest_checkpoint_loses_no_step(tmp_path, monkeypatch, straight, moment):
    """Between the rename of a checkpoint, the file that names it and the line of its metrics."""
    from ragen.trainer.checkpoints import checkpoint

    write = checkpoint.write_atomic

    def die(path, text):
        if moment == "after":
            write(path, text)
        if text == "2\n":
            raise InterruptedError("killed")
        write(path, text)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_atomic", die)
        trainer = build_trainer(small_config(tmp_path, *KILLED))
        assert trainer is not None
        with pytest.raises(InterruptedError):
            trainer.fit()
    # The step after it may have been logged before its checkpoint failed.
    assert list(Run(tmp_path).metrics) in ([0, 1], [0, 1, 2])
    check_same(straight, train(tmp_path, *KILLED), 3)


def test_a_run_killed_between_its_last_checkpoint_and_its_end_is_finished_by_the_next_start(tmp_path, straight):
    run = train(tmp_path, *KILLED)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "metrics.jsonl").write_text("".join(lines[:-1]))
    run_status = json.loads((tmp_path / "status.json").read_text())
    (tmp_path / "status.json").write_text(json.dumps(run_status | {"state": "running"}))
    check_same(straight, train(tmp_path, *KILLED), 3)
    assert run.status["state"] == "finished"


# --- what is not resumed


def test_a_finished_run_started_again_ends_at_once_and_changes_nothing(tmp_path, capsys):
    train(tmp_path, GRPO)
    before = snapshot(tmp_path)
    assert build_trainer(small_config(tmp_path, GRPO)) is None
    assert "is finished: step 2 of 2. Nothing to do; raise trainer.total_training_steps" in capsys.readouterr().out
    assert snapshot(tmp_path) == before


def test_a_run_that_stopped_early_is_not_taken_up_again_unless_asked_to(tmp_path, capsys):
    stop = [f"{ROLLOUT}.rollout_filter_metric=reward", f"{ROLLOUT}.rollout_filter_include_zero=False"]
    empty = [f"{ROLLOUT}.response_length=1", "es_manager.format_penalty=0", "trainer.total_training_steps=4"]
    changes = [GRPO, *stop, *empty, f"{ROLLOUT}.rollout_filter_empty_stop_steps=2"]
    train(tmp_path, *changes)
    before = snapshot(tmp_path)
    assert build_trainer(small_config(tmp_path, *changes)) is None
    said = capsys.readouterr().out
    assert "ended early at step 2: empty_filtered_steps" in said
    assert snapshot(tmp_path) == before
    path = f"trainer.resume_from_path={tmp_path / 'global_step_2'}"
    rule_off = f"{ROLLOUT}.rollout_filter_empty_stop_steps=0"
    assert f"set trainer.resume_mode=resume_path {path} {rule_off} (" in said
    run = train(tmp_path, *changes, "trainer.resume_mode=resume_path", path)
    assert list(run.metrics) == [0, 1, 2, 3]  # a third empty step
    path = f"trainer.resume_from_path={tmp_path / 'global_step_3'}"
    run = train(tmp_path, *changes, "trainer.resume_mode=resume_path", path, rule_off)
    assert list(run.metrics) == [0, 1, 2, 3, 4]


def test_a_run_can_be_made_longer(tmp_path):
    longer = "trainer.total_training_steps=4"
    straight = train(tmp_path / "straight", GRPO, longer)
    train(tmp_path / "resumed", GRPO)
    check_same(straight, train(tmp_path / "resumed", GRPO, longer), 4)


def test_a_run_that_is_started_over_moves_the_old_one_aside_whole(tmp_path, capsys):
    root = tmp_path / "run"
    old = train(root, GRPO, "trainer.total_training_steps=3")
    before = {name.replace(str(root), ""): content for name, (_, content) in snapshot(root).items()}
    train(root, GRPO, "trainer.total_training_steps=1", "trainer.resume_mode=disable")
    assert old.checkpoints == ["global_step_1"] and list(old.metrics) == [0, 1]
    assert not (root / "episodes" / "dropped").exists()
    [aside] = tmp_path.glob("run.*")
    assert f"Moved what an earlier run left in {root} to {aside}.\n" in capsys.readouterr().out
    after = {name.replace(str(aside), ""): content for name, (_, content) in snapshot(aside).items()}
    assert after == before


def test_a_finished_run_without_checkpoints_ends_at_once_too_and_a_longer_one_starts_over(tmp_path, capsys):
    root, unsaved = tmp_path / "run", [GRPO, "trainer.save_freq=-1"]
    train(root, *unsaved)
    before = snapshot(root)
    assert build_trainer(small_config(root, *unsaved)) is None
    assert "is finished: step 2 of 2. Nothing to do; set trainer.resume_mode=disable" in capsys.readouterr().out
    assert snapshot(root) == before
    assert list(train(root, *unsaved, "trainer.total_training_steps=1").metrics) == [0, 1]
    assert list(train(root, *unsaved, "seed.train=77", "trainer.total_training_steps=1").metrics) == [0, 1]
    assert len(list(tmp_path.glob("run.*"))) == 2


def test_the_time_of_the_checkpoints_step_is_in_the_totals_of_a_resumed_run(tmp_path):
    first = train(tmp_path, GRPO, "trainer.total_training_steps=2")
    before = first.metrics[2]["timing_s/total"]
    longer = train(tmp_path, GRPO, "trainer.total_training_steps=3")
    assert longer.metrics[3]["timing_s/total"] == pytest.approx(before + longer.metrics[3]["timing_s/step"])


def test_resuming_from_a_path_forgets_what_came_after_it(tmp_path):
    steps = [GRPO, "trainer.total_training_steps=3", "trainer.save_freq=1", "trainer.max_actor_ckpt_to_keep=null"]
    straight = train(tmp_path / "a", *steps)
    again = shutil.copytree(tmp_path / "a", tmp_path / "b")
    path = f"trainer.resume_from_path={again / 'global_step_1'}"
    check_same(straight, train(again, *steps, "trainer.resume_mode=resume_path", path), 3)


def test_a_killed_run_that_was_started_over_does_not_find_the_old_checkpoints(tmp_path):
    over = [GRPO, "trainer.resume_mode=disable", "trainer.save_freq=1", "seed.train=77"]
    train(tmp_path, GRPO, "trainer.total_training_steps=4", "trainer.save_freq=1")
    interrupted(tmp_path, 0, *over)  # before its first checkpoint
    auto = [GRPO, "trainer.save_freq=1", "seed.train=77"]
    run = train(tmp_path, *auto, env=LAKE)
    assert list(run.metrics) == [0, 1, 2]
    assert run.episodes(1)[0].seed == 77
    assert run.checkpoints == ["global_step_2"]
    [old] = [path for path in tmp_path.parent.glob(f"{tmp_path.name}.*") if (path / "global_step_4").exists()]
    assert Run(old).checkpoints == ["global_step_4"]


# --- checkpoints that are refused


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Run:
    return train(tmp_path_factory.mktemp("finished"), GRPO, env=LAKE)


def test_a_checkpoint_of_another_model_is_refused_by_name(finished):
    message = refused(finished.path, GRPO, "model_path=tiny/sokoban")
    assert "was trained with model_path=tiny/frozen_lake, this run asks for tiny/sokoban" in message
    message = refused(finished.path, GRPO, "actor_rollout_ref.model.path=tiny/bandit")
    assert "this run asks for tiny/bandit" in message
    bandit = ["es_manager.train.env_configs.tags=[Bandit]", GRPO]  # `tiny` is another model there
    assert "this run asks for tiny/bandit" in refused(finished.path, *bandit)


def test_a_checkpoint_without_what_a_run_needs_is_refused(finished):
    assert "has no critic" in refused(finished.path)
    assert "lora.rank=0, this run asks for 4" in refused(finished.path, GRPO, "lora.rank=4")


WEIGHTS_ONLY = "actor_rollout_ref.actor.checkpoint.save_contents=[model]"


@pytest.fixture(scope="module")
def weights_only(tmp_path_factory) -> Run:
    critic = "critic.checkpoint.save_contents=[model]"
    keep = ["trainer.max_actor_ckpt_to_keep=null", "trainer.max_critic_ckpt_to_keep=null"]
    return train(tmp_path_factory.mktemp("weights") / "run", WEIGHTS_ONLY, critic, "trainer.save_freq=1", *keep)


@pytest.mark.parametrize("contents", ["[model]", "[model,extra]", "[model,optimizer]"])
def test_weights_alone_are_not_trained_on_and_the_run_starts_over(tmp_path, contents, capsys):
    root, changes = tmp_path / "run", [GRPO, WEIGHTS_ONLY.replace("[model]", contents)]
    train(root, *changes)
    assert build_trainer(small_config(root, *changes)) is None, "the same command on a finished run"
    longer = train(root, *changes, "trainer.total_training_steps=3", "trainer.test_freq=0")
    assert "global_step_2 holds weights only" in capsys.readouterr().out
    assert list(longer.metrics) == [0, 1, 2, 3]
    [aside] = tmp_path.glob("run.*")
    assert Run(aside).checkpoints == ["global_step_2"]


def test_weights_alone_are_refused_by_path_but_for_looking_at_them(weights_only, tmp_path, capsys):
    path = ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={weights_only.path / 'global_step_1'}"]
    message = refused(tmp_path, *path, env=BANDIT)
    assert "holds weights only" in message and "trainer.exit_after_gradient_analysis=True" in message
    analysis = [*path, "trainer.gradient_analysis_mode=True", "trainer.exit_after_gradient_analysis=True"]
    assert "holds weights only" in refused(tmp_path, *analysis, "trainer.gradient_analysis_every=5", env=BANDIT)
    run = train(tmp_path, *analysis, "trainer.gradient_analysis_every=1", "trainer.val_before_train=False")
    assert "the critic's optimizer starts fresh" in capsys.readouterr().out
    [(step, row)] = run.metrics.items()
    assert step == 2 and row["trainer/exited_after_gradient_analysis"] == 1 and "critic/vf_loss" in row
    assert train(tmp_path / "val", *path, "trainer.val_only=True")  # looking at it is fine


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("null", "resume_mode=resume_path needs the path"),
        ("{root}/global_step_9", "has no actor folder"),
        ("{root}/global_step_2/actor", "expected a folder named global_step_<N>"),
        ("{root}", "needs the path of a global_step_<N> folder"),
    ],
)
def test_a_wrong_resume_path_says_what_was_expected(finished, path, message):
    path = path.format(root=finished.path)
    assert message in refused(
        finished.path, GRPO, "trainer.resume_mode=resume_path", f"trainer.resume_from_path={path}"
    )


# --- checkpoints that are written beside training

SLOW_DISK = """
import sys, time
from ragen.trainer.checkpoints import checksums
add = checksums.Settled.add
checksums.Settled.add = lambda self, below: (time.sleep(0.6), add(self, below))
from ragen.cli import main
sys.exit(main(["train", *sys.argv[1:]]))
"""


def on_slow_disk(root, *changes: str) -> subprocess.Popen[str]:
    """A run whose checkpoints take longer than its steps."""
    return subprocess.Popen(
        [sys.executable, "-c", SLOW_DISK, *overrides(root, *changes)],
        cwd=REPOSITORY,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def is_writing(root, step: int) -> bool:
    return any(root.glob(f".global_step_{step}.*.tmp"))


BESIDE = {
    "as it begins": lambda root: is_writing(root, 1),
    "when its step has been logged": lambda root: is_writing(root, 1) and has_logged(root, 1),
    "the second one": lambda root: is_writing(root, 2),
}


@pytest.mark.parametrize("moment", BESIDE)
def test_a_kill_while_a_checkpoint_is_written_beside_training_changes_nothing(tmp_path, straight, moment):
    assert kill_when(on_slow_disk(tmp_path, *KILLED), lambda: BESIDE[moment](tmp_path))
    assert Run(tmp_path).checkpoints == (["global_step_1"] if moment == "the second one" else [])
    code, output = finish(start_process(tmp_path, *KILLED))
    assert code == 0, output
    check_same(straight, Run(tmp_path), 3)


def test_a_signal_while_a_checkpoint_is_written_leaves_a_whole_one(tmp_path, straight):
    process = on_slow_disk(tmp_path, *KILLED)
    while not is_writing(tmp_path, 1):
        assert process.poll() is None
        time.sleep(0.002)
    process.send_signal(signal.SIGTERM)
    code, output = finish(process)
    assert code == 128 + signal.SIGTERM and "is saved" in output, output
    assert not list(tmp_path.glob(".*.tmp")) and Run(tmp_path).checkpoints
    code, output = finish(start_process(tmp_path, *KILLED))
    assert code == 0, output
    check_same(straight, Run(tmp_path), 3)
