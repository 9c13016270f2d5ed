"""The preflight: what plays, what it finds, and that it never stands in the way."""

import json
import time
from dataclasses import replace

import pytest

from ragen.config import Config, load_config
from ragen.env import REGISTRY
from ragen.env.bandit.env import BanditEnv
from ragen.env.frozen_lake.env import FrozenLakeEnv
from ragen.env.sokoban.env import SokobanEnv
from ragen.tracking.rundir import PREFLIGHT
from ragen.trainer.starting import preflight as module
from ragen.trainer.starting.preflight import play_references, preflight
from tests.trainer.runs import LAKE, Run, small_config, train

VAL = "es_manager.val"
HEADER = "What pays in"


def levels(config_name: str, count: int, *changes: str) -> Config:
    groups = [f"{VAL}.env_groups={count}", f"{VAL}.env_configs.n_groups=[{count}]"]
    return load_config(config_name, ["model_path=tiny", *groups, *changes])


@pytest.fixture
def counting(monkeypatch) -> Config:
    """An environment of somebody's own: no solver, Up gives 1, Down costs .5 and loses the level."""
    monkeypatch.setitem(REGISTRY, "counting", "tests.llm_agent.counting:CountingEnv")
    tag = "{env_type: counting, max_actions_per_traj: 4, env_instruction: Count., max_tokens: 9, env_config: {goal: 2}}"
    tags = [f"es_manager.{name}.env_configs.tags=[Mine]" for name in ("train", "val")]
    return levels("quickstart", 16, f"+custom_envs.Mine={tag}", *tags)


def test_names_that_no_reply_can_hold_are_said(counting):
    assert preflight(counting).notes == []
    parted = replace(counting, agent_proxy=replace(counting.agent_proxy, action_sep="ow"))
    [line] = preflight(parted).notes
    assert line.startswith("Mine: no reply can name 'Down' (1 of 3 actions): a name holds neither agent_proxy.")
    lenient = replace(parted, agent_proxy=replace(parted.agent_proxy, answer_parsing="lenient"))
    assert preflight(lenient).notes == [], "a known name is not taken apart"


def test_sokoban_by_its_defaults():
    found = preflight(levels("_2_sokoban", 64), limit_s=60)
    [each] = found.tags
    assert list(each.policies) == ["silent", "random", "solver"]
    silent, random, solver = each.policies.values()
    assert (silent.total, silent.success, silent.episodes) == (-0.5, 0.0, 64)
    assert 0.05 < random.success < 0.4 and solver.success > 0.95
    assert each.failed == -1.0 and each.break_even == pytest.approx(0.044, abs=0.002)
    assert found.notes == found.warnings == []


def test_where_actions_of_sokoban_are_free_trying_costs_nothing():
    [each] = preflight(levels("_2_sokoban", 64, "+custom_envs.CoordSokoban.env_config.step_reward=0"), limit_s=60).tags
    silent, random, solver = each.policies.values()
    assert (silent.total, each.failed) == (-0.5, 0.0)
    assert random.total == pytest.approx(11 * random.success) and solver.total == pytest.approx(11 * solver.success)
    assert each.break_even == pytest.approx(-0.5 / 11) and not each.silence_pays


def test_an_environment_of_ones_own_is_played_by_silence_and_chance(counting):
    [each] = preflight(counting, limit_s=60).tags
    assert list(each.policies) == ["silent", "random"]  # it has no solver
    assert each.policies["silent"].total == pytest.approx(5 * -0.1)
    assert each.policies["random"].episodes == 16 and each.solved is not None


def test_every_tag_has_its_table_also_one_that_is_trained_only():
    config = levels("quickstart", 4, f"{VAL}.env_configs.tags=[Bandit]")
    found = preflight(config, limit_s=60)
    assert [each.tag for each in found.tags] == ["Bandit", "FrozenLake"]
    assert [each.policies["random"].episodes for each in found.tags] == [2, 2]
    text = found.to_text(has_break_even=True)
    assert text.count(HEADER) == 2 and text.count("silence never pays") == 2


def test_the_levels_are_those_of_validation():
    config = levels("quickstart", 20)
    for episodes in play_references(config, limit_s=60).episodes.values():
        assert [episode.seed for episode in episodes] == [config.seed.val + number for number in range(20)]


def test_a_slow_environment_is_cut_and_its_whole_parts_count(monkeypatch):
    """Each step takes a tick of a clock of our own; after the first parts the next would not fit."""
    now = time.monotonic()
    step = FrozenLakeEnv.step

    def slow(self, action):
        nonlocal now
        now += 1.0
        return step(self, action)

    monkeypatch.setattr(FrozenLakeEnv, "step", slow)
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    config = levels("quickstart", 64, "+custom_envs.FrozenLake.step_timeout=null")
    found = preflight(config, limit_s=100)
    [each] = found.tags
    assert each.policies["random"].episodes in (1, 4)  # parts of 1 and 3 levels
    assert found.notes == [
        f"The preflight was ended after 100 s, with {each.policies['random'].episodes} levels played at random."
    ]
    nothing = preflight(config, limit_s=1)  # over within the first level
    assert list(nothing.tags[0].policies) == ["silent"] and nothing.notes[0].endswith("with 0 levels played at random.")


def test_a_call_that_hangs_ends_the_preflight_with_its_time(monkeypatch):
    def hang(self, action):
        while True:
            time.sleep(0.01)

    monkeypatch.setattr(BanditEnv, "step", hang)
    played = play_references(levels("quickstart_bandit", 4, f"{VAL}.env_configs.tags=[Bandit]"), limit_s=0.3)
    assert played.is_cut and not played.fault and list(played.episodes) == ["silent"]


def test_an_environment_that_raises_is_one_line(monkeypatch):
    def fail(self, action):
        raise ValueError("the pull broke\nbadly")

    monkeypatch.setattr(SokobanEnv, "step", fail)
    found = preflight(levels("_2_sokoban", 4), limit_s=60)
    assert list(found.tags[0].policies) == ["silent"] and found.warnings == []
    [note] = found.notes
    assert note.startswith("The preflight was ended by an environment: CoordSokoban: ValueError: the pull broke")
    assert "\n" not in note


def test_a_random_answer_that_fails_is_said_once(caplog):
    """Not once for each part of the levels, and not as if there were none."""
    own = "tests.api.own:Loud"
    tag = f"{{env_type: '{own}', max_actions_per_traj: 1, env_instruction: Say., max_tokens: 9}}"
    tags = [f"es_manager.{name}.env_configs.tags=[Mine]" for name in ("train", "val")]
    found = preflight(levels("quickstart", 16, f"+custom_envs.Mine={tag}", *tags), limit_s=60)
    assert found.notes == ["Mine has no random line: its sample_text failed."]
    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith("Mine: sample_text failed: AttributeError: 'Rng' object has no attribute 'randint'")


# --- in a training --------------------------------------------------------------------------------------------------


def test_a_training_says_it_once_and_writes_it_down(tmp_path, capsys):
    run = train(tmp_path, "trainer.save_freq=1", "trainer.total_training_steps=1", env=LAKE)
    said = capsys.readouterr().out
    assert said.count(HEADER) == 1 and "\n  model " in said and "warning: silence" not in said
    record = json.loads((tmp_path / PREFLIGHT).read_text())
    policies = record["tags"]["FrozenLake"]["policies"]
    assert list(policies) == ["silent", "random", "solver", "model"] and policies["silent"]["total"] == -0.2
    assert policies["model"]["success"] == run.metrics[0]["val-env/FrozenLake/success"]
    assert policies["model"]["total"] == pytest.approx(run.metrics[0]["val-env/FrozenLake/score"])
    assert all(not name.startswith("preflight") for row in run.metrics.values() for name in row)
    written = (tmp_path / PREFLIGHT).stat().st_mtime_ns

    train(tmp_path, "trainer.save_freq=1", "trainer.total_training_steps=2", env=LAKE)
    assert HEADER not in capsys.readouterr().out, "a resumed run has said it"
    assert (tmp_path / PREFLIGHT).stat().st_mtime_ns == written


def test_without_a_first_validation_there_is_no_row_of_the_model(tmp_path, capsys):
    quick = ("trainer.val_before_train=False", "trainer.total_training_steps=1", "trainer.save_freq=-1")
    train(tmp_path / "a", *quick, "trainer.test_freq=-1")
    said = capsys.readouterr().out
    assert said.count(HEADER) == 1 and "\n  model " not in said
    train(tmp_path / "b", *quick, "trainer.test_freq=-1", "trainer.preflight=False")
    assert HEADER not in capsys.readouterr().out and not (tmp_path / "b" / PREFLIGHT).exists()


def test_a_model_that_says_nothing_is_warned_of_where_trying_costs_and_trained(tmp_path, capsys):
    short = ("actor_rollout_ref.rollout.response_length=1", "trainer.total_training_steps=1", "trainer.save_freq=-1")
    train(tmp_path / "free", *short, env=LAKE)
    said = capsys.readouterr().out
    assert "\n  model       0.000" in said and "warning: silence" not in said, "a failed try costs nothing"
    run = train(tmp_path, *short, "es_manager.reward_function=tests.api.own:tiring", env=LAKE)
    assert "warning: silence pays in FrozenLake. An agent that gives invalid" in capsys.readouterr().out
    assert json.loads((tmp_path / PREFLIGHT).read_text())["tags"]["FrozenLake"]["silence_pays"] is True
    assert 1 in run.metrics


def test_whatever_goes_wrong_in_a_preflight_the_run_goes_on(tmp_path, capsys, monkeypatch):
    (tmp_path / PREFLIGHT).mkdir()  # which cannot be written
    monkeypatch.setattr("ragen.trainer.build.take_over", lambda *_, **__: None)
    run = train(tmp_path, "trainer.total_training_steps=1", "trainer.save_freq=-1")
    assert "The preflight failed: IsADirectoryError" in capsys.readouterr().out
    assert run.status["state"] == "finished"


def test_the_next_run_of_the_folder_moves_it_aside_with_the_rest(tmp_path):
    quick = ("trainer.total_training_steps=1", "trainer.save_freq=-1", "trainer.resume_mode=disable")
    root = tmp_path / "run"
    train(root, *quick)
    Run(root)
    (root / PREFLIGHT).write_text('"the first"')
    train(root, *quick)
    [aside] = tmp_path.glob("run.*")
    assert (aside / PREFLIGHT).read_text() == '"the first"'
    assert small_config(root).trainer.preflight
