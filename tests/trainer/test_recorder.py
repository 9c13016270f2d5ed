"""What is kept of rollouts: episodes, tables and signs."""

import pytest

from ragen.algorithms.rollout_filter import FilterSettings, RolloutFilter
from ragen.tracking.episodes import read_episodes
from ragen.tracking.rundir import read_table, table_steps
from ragen.tracking.tracker import Trackers
from ragen.tracking.validation import mean_success
from ragen.trainer.recorder import Recorder
from ragen.types import Episode, Status, Turn, group_episodes
from tests.tracking.trackers import some_trackers
from tests.trainer.runs import small_config, train

GRPO = "algorithm.adv_estimator=grpo"


def episode(group_id: int, member: int, reward: float, *, status: Status = Status.OUT_OF_TURNS) -> Episode:
    reply = {"response_ids": [2], "logprobs": [0.0], "text": f"reply {member}", "stop_reason": "stop"}
    turn = Turn(user="?", prompt_ids=[1], reward=reward, **reply)
    level = {"tag": "Bandit", "env_type": "bandit", "group_id": group_id, "member": member, "seed": group_id}
    if status.is_fault:
        return Episode(**level, turns=[], status=status, error="ValueError: it broke")
    return Episode(**level, turns=[turn], status=status)


@pytest.fixture
def trackers(tmp_path):
    with some_trackers(tmp_path) as opened:
        yield opened


def recorder(trackers: Trackers, *changes: str) -> Recorder:
    return Recorder(small_config(trackers.run.path, *changes).trainer, trackers)


def test_the_tables_hold_every_reward_and_the_fate_of_every_group(trackers, tmp_path):
    groups = group_episodes([episode(0, 0, 1.0), episode(0, 1, 3.0), episode(1, 0, 2.0), episode(1, 1, 2.0)])
    kept = RolloutFilter(FilterSettings(strategy="top_k", value=0.5))(groups)
    recorder(trackers).record_filter(1, kept)
    recorder(trackers, "trainer.log_group_rv_table=True").record_filter(2, kept)
    assert read_table(tmp_path, "rollout/reward_table", 1) == (
        ["group_id", "reward_0", "reward_1"],
        [[0, 1.0, 3.0], [1, 2.0, 2.0]],
    )
    assert table_steps(tmp_path, "rollout/group_rv_table") == [2]
    columns, rows = read_table(tmp_path, "rollout/group_rv_table", 2)
    assert columns == ["step", "group_id", "reward_std", "selected"]
    assert rows == [[2, 0, pytest.approx(2**0.5), True], [2, 1, 0.0, False]]


def test_the_table_of_group_deviations_grows_also_over_a_resume(trackers, tmp_path):
    groups = group_episodes([episode(0, 0, 1.0), episode(0, 1, 3.0)])
    kept = RolloutFilter(FilterSettings())(groups)
    for step in (1, 2, 3, 2):  # the third step is lost and done again from the second on
        recorder(trackers, "trainer.log_group_rv_table=True").record_filter(step, kept)
    tables = [read_table(tmp_path, "rollout/group_rv_table", step)[1] for step in (1, 2, 3)]
    assert [[row[0] for row in rows] for rows in tables] == [[1], [1, 2], [1, 2, 3]]


def test_training_episodes_are_written_at_their_interval_and_validations_always(trackers, tmp_path):
    every_second = recorder(trackers, "trainer.save_episodes_every=2")
    for step in (1, 2, 3):
        with every_second.training(step, [episode(0, 0, 1.0)]) as write:
            write()
        every_second.record_validation(step, [episode(0, 0, 1.0)], {})
    names = sorted(file.name for file in (tmp_path / "episodes").iterdir())
    assert names == [f"{name}.jsonl.gz" for name in ("train_step_2", "val_step_1", "val_step_2", "val_step_3")]


def test_a_rollout_that_cannot_be_scored_is_written_all_the_same(trackers, tmp_path):
    played = [episode(0, 0, 1.0)]
    with pytest.raises(MemoryError), recorder(trackers).training(1, played):
        played[0].turns[0].advantages = [0.5]
        raise MemoryError
    [written] = read_episodes(tmp_path / "episodes" / "train_step_1.jsonl.gz")
    assert written.turns[0].advantages == [0.5]


def test_a_rollout_that_cannot_be_written_ends_the_step(trackers, tmp_path):
    (tmp_path / "episodes").write_text("a file where the folder should be")
    with pytest.raises(FileExistsError), recorder(trackers).training(1, [episode(0, 0, 1.0)]) as write:
        write()


def test_generations_of_a_validation_become_a_table_on_request(trackers, tmp_path):
    shows_one = recorder(trackers, "trainer.generations_to_log_to_wandb.val=1")
    shows_one.record_validation(3, [episode(0, 0, 1.0), episode(0, 1, 2.0)], {})
    columns, rows = read_table(tmp_path, "val/generations", 3)
    assert columns == ["tag", "seed", "conversation", "score", "success"] and len(rows) == 1
    assert rows[0][:2] == ["Bandit", 0] and "[assistant]\nreply " in rows[0][2]


def test_the_line_of_a_step_says_the_success_that_compare_and_diagnose_read(tmp_path, capsys):
    """The mean over the environments, however many levels each of them has."""
    ends = {"val-env/Bandit/success_low": 0.5, "val-env/Bandit/success_high": 0.9}
    lake = {f"val-env/Lake/{name}": value for name, value in (("success", 0.2), ("success_low", 0.1))}
    metrics = {"val-env/Bandit/success": 0.8, **ends, **lake, "val-env/Lake/success_high": 0.5}
    with some_trackers(tmp_path, "console") as opened:
        recorder(opened).record_validation(1, [episode(0, 0, 1.0)], metrics)
        opened.log(1, metrics)
    # 0.3 and 0.1 below, 0.1 and 0.3 above: as squares, halved
    assert f"{mean_success(metrics)}" == "0.500 [0.342, 0.658]"
    assert "val 0.500 [0.342, 0.658]" in capsys.readouterr().out


def test_rollouts_that_are_lost_altogether_are_reported_once(trackers, capsys):
    lost = [episode(0, member, 0.0, status=Status.ENV_ERROR) for member in range(2)]
    keeps = recorder(trackers)
    for step in (1, 2):
        with keeps.training(step, lost) as write:
            write()
    said = capsys.readouterr().out
    assert said.count("train: the environment raised in all 2 episodes: ValueError: it broke") == 1
    assert keeps.signs["train"].trouble is not None and "val" not in keeps.signs


def test_a_second_folder_receives_the_episodes(tmp_path):
    second = [f"trainer.rollout_data_dir={tmp_path / 'train'}", f"trainer.validation_data_dir={tmp_path / 'val'}"]
    run = train(tmp_path / "run", GRPO, *second, "trainer.save_episodes_every=0")
    names = [file.name for file in sorted((tmp_path / "train" / "episodes").iterdir())]
    assert names == ["train_step_1.jsonl", "train_step_2.jsonl"]
    assert len(list((tmp_path / "val" / "episodes").iterdir())) == 2
    assert not list(run.path.glob("episodes/train_*"))
