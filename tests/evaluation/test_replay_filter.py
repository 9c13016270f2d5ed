"""`ragen replay-filter` on a small saved run."""

from __future__ import annotations

import json

import pytest

from ragen.algorithms.filter_panel import describe, panel
from ragen.algorithms.rollout_filter import FilterSettings
from ragen.cli.replay_filter import main
from ragen.config import load_config
from ragen.config.show import to_yaml
from ragen.errors import ConfigError, RagenError
from ragen.evaluation.replay_filter import read_settings
from ragen.tracking.rundir import RunDir
from ragen.types import Episode, Status, Turn

OWN_FILTER = ["actor_rollout_ref.rollout.rollout_filter_value=0.8"]


def episode(group: int, member: int, reward: float, status: Status = Status.FAILED) -> Episode:
    turn = Turn(user="u", prompt_ids=[1], response_ids=[2], logprobs=[-0.5], text="t", stop_reason="eos", reward=reward)
    return Episode(
        tag="A", env_type="a", group_id=group, member=member, seed=group, system="s", turns=[turn], status=status
    )


def pair(group: int, first: float, second: float, **options) -> list[Episode]:
    return [episode(group, 0, first), episode(group, 1, second, **options)]


@pytest.fixture
def run(tmp_path):
    """Two steps of groups 4, 5, 6: the first varies by 0, 1.41 and 5.66; the second nowhere."""
    directory = RunDir(tmp_path / "run")
    directory.write_config(to_yaml(load_config("base", OWN_FILTER)))
    varied = pair(4, 1, 1) + pair(5, 0, 2, status=Status.SOLVED) + pair(6, 0, 8)
    directory.write_episodes("train_step_1", varied)
    directory.write_episodes("train_step_2", pair(4, 1, 1) + pair(5, 2, 2) + pair(6, 3, 3))
    return tmp_path / "run"


def replay(capsys, *argv) -> list[dict]:
    main([*map(str, argv), "--json"])
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_all_steps_are_one_table_of_the_panel(run, capsys):
    main([str(run)])
    text = capsys.readouterr().out
    assert "train_step_1 to train_step_2: 2 files, 6 groups" in text
    for settings in panel():
        assert describe(settings) in text
    (row,) = [line.split() for line in text.splitlines() if line.strip().startswith("top_p 1, zeros out")]
    # Of three groups two and none are kept; the deviations of the two are 1.41 and 5.66.
    assert row[4:] == ["0.33", "0.00-0.67", "1", "3.54"]


def test_twenty_steps_fit_on_a_screen(run, capsys):
    for step in range(3, 21):
        RunDir(run).write_episodes(f"train_step_{step}", pair(4, 1, 1) + pair(5, 0, 2))
    RunDir(run).write_episodes("val_step_20", [episode(0, 0, 1.0)])
    main([str(run)])
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert "train_step_1 to train_step_20: 20 files, 42 groups" in lines[0]
    assert len(lines) < 45 and max(map(len, lines)) <= 80


def test_each_step_gets_a_table_on_request_and_the_steps_are_in_order(run, capsys):
    RunDir(run).write_episodes("train_step_10", pair(4, 1, 1))
    main([str(run), "--per-step", "rollout_filter_value=0.5"])
    text = capsys.readouterr().out
    titles = [line.split(":")[0] for line in text.splitlines() if ": 3 groups" in line or ": 1 groups" in line]
    assert titles == ["train_step_1", "train_step_2", "train_step_10"]
    assert "groups in order of choice" in text


def test_the_panel_shows_what_each_filter_would_have_kept(run, capsys):
    records = {(r["file"], r["filter"]): r for r in replay(capsys, run)}
    first, second = ({f: r["kept_ids"] for (file, f), r in records.items() if file.endswith(n)} for n in "12")
    assert first["top_p 1, zeros in"] == [4, 5, 6]
    assert first["top_p 1, zeros out"] == [5, 6]
    assert first["top_p 0.8 linear, zeros out"] == [6]
    assert first["top_p 0.98 linear, zeros out"] == [5, 6]
    assert first["min_p 0.5, zeros in"] == [6]
    assert first["z_score 0, zeros out"] == [6]
    assert first["top_p 1 of success_variance, zeros out"] == [5]
    assert second["top_p 1, zeros in"] == [4, 5, 6]
    assert second["top_p 0.8 linear, zeros out"] == []
    record = records["train_step_1", "top_p 1, zeros out"]
    assert record["scores"] == pytest.approx({"4": 0, "5": 2**0.5, "6": 32**0.5})
    assert record["metrics"]["rollout/filter_kept_ratio"] == pytest.approx(2 / 3)


def test_the_filter_of_the_run_stands_first(run, capsys):
    records = replay(capsys, run)
    assert records[0]["filter"] == "the run's own: top_p 0.8 linear, zeros in"
    assert records[0]["kept_ids"] == [6]


def test_a_filter_of_ones_own_takes_the_rest_from_the_run(run, capsys):
    records = replay(capsys, run, "rollout_filter_include_zero=False", "--files", "train_step_1")
    assert [record["filter"] for record in records] == ["top_p 0.8 linear, zeros out"]
    records = replay(
        capsys,
        run / "episodes" / "train_step_1.jsonl.gz",
        "actor_rollout_ref.rollout.rollout_filter_strategy=top_k_abs",
        "rollout_filter_value=2",
    )
    assert [record["selected_ids"] for record in records] == [[6, 5]]


def test_the_scale_of_rewards_moves_softmax_filters_and_no_linear_ones(run, capsys):
    def kept(mode: str, scale: float) -> list[int]:
        keys = ("rollout_filter_value=0.9", f"rollout_filter_top_p_prob_mode={mode}", "include_zero=False")
        return replay(capsys, run, "--files", "train_step_1", "--reward-scale", scale, *keys)[0]["kept_ids"]

    assert kept("softmax", 1) == [6] and kept("softmax", 0.1) == [5, 6]
    assert kept("linear", 1) == kept("linear", 0.1) == kept("linear", 10) == [5, 6]


def test_entropies_of_saved_episodes_are_scored(run, capsys):
    episodes = [episode for group in (4, 5) for episode in pair(group, 0, 0)]
    for play, entropies in zip(episodes, [[1.0], [2.0], [0.5], [0.5]], strict=True):
        play.turns[0].entropies = entropies
    RunDir(run).write_episodes("train_step_3", episodes)
    (record,) = replay(capsys, run, "rollout_filter_metric=entropy", "--files", "train_step_3")
    assert record["scores"] == {"4": 1.5, "5": 0.5}


def test_entropies_that_were_not_saved_are_not_made_up(run, capsys, caplog):
    with pytest.raises(RagenError, match="do not hold the entropies"):
        main([str(run), "rollout_filter_metric=entropy"])
    RunDir(run).write_config(to_yaml(load_config("base", ["actor_rollout_ref.rollout.rollout_filter_metric=entropy"])))
    records = replay(capsys, run, "--files", "train_step_1")
    assert [record["filter"] for record in records] == [describe(settings) for settings in panel()]
    assert "train_step_1.jsonl.gz holds no entropies" in caplog.text


def test_groups_that_lost_a_member_are_left_out(tmp_path, capsys):
    path = RunDir(tmp_path).write_episodes("train", pair(1, 0, 1) + pair(2, 0, 1, status=Status.ENV_ERROR))
    records = replay(capsys, path)
    assert records[0]["num_groups"] == 1 and records[0]["num_incomplete"] == 1
    assert not records[0]["filter"].startswith("the run's own")
    main([str(path)])
    assert "1 incomplete groups left out" in capsys.readouterr().out


def test_single_episodes_are_said_not_to_vary(tmp_path, capsys):
    path = RunDir(tmp_path).write_episodes("greedy", [episode(0, 0, 1.0), episode(1, 0, 2.0)])
    main([str(path)])
    assert "Every group has one episode" in capsys.readouterr().out


def test_overrides_are_checked(tmp_path):
    assert read_settings(tmp_path, ["value=1e-1", "metric=reward_std"]) == FilterSettings(value=0.1)
    with pytest.raises(ConfigError, match=r"Did you mean .*rollout_filter_strategy"):
        read_settings(tmp_path, ["rollout_filter_strateg=min_p"])
    with pytest.raises(ConfigError, match="Did you mean min_p"):
        read_settings(tmp_path, ["rollout_filter_strategy=min_q"])
    with pytest.raises(ConfigError, match="above 0 and at most 1"):
        read_settings(tmp_path, ["rollout_filter_value=2"])
    with pytest.raises(ConfigError, match="Write key=value"):
        read_settings(tmp_path, ["0.5"])


def test_a_run_that_is_not_there_is_said_so(tmp_path, run):
    with pytest.raises(RagenError, match="does not exist"):
        main([str(tmp_path / "nowhere")])
    with pytest.raises(RagenError, match="matches 'val"):
        main([str(run), "--files", "val*"])


def test_the_names_of_the_panel_are_distinct():
    names = [describe(settings) for settings in panel()]
    assert len(set(names)) == len(names)
