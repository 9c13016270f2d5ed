"""The card of a run: written at every end, and true over all its resumes."""

import hashlib
import json
import signal

import pytest

from ragen.env.bandit.env import BanditEnv
from ragen.errors import Interrupted
from ragen.files import read_yaml
from ragen.tracking import run_card
from ragen.tracking.energy import NotMeasured
from ragen.tracking.machine import Gpu
from ragen.tracking.run_card import CARD, PAGE, begin_card, count, end_card, read_card, summarize, total
from ragen.tracking.rundir import RunDir
from ragen.trainer.build import build_trainer
from tests.tracking.trackers import config_of_loggers
from tests.trainer.runs import Run, has_logged, kill_when, small_config, start_process, train

GRPO = "algorithm.adv_estimator=grpo"
SHORT = (GRPO, "trainer.save_freq=1", "trainer.test_freq=-1", "trainer.val_before_train=False")


def attempt(**changes) -> dict:
    known = {"config_sha256": "c", "versions": {}, "machine": {}, "energy": {"note": "none"}, "seconds": 2.0}
    return known | changes


def step(number: int, **changes: float) -> dict:
    row = {
        "rollout/filter_kept_count": 3.0,
        "rollout/filter_dropped_count": 1.0,
        "rollout/empty_after_filter": 0.0,
        "train/faults/incomplete_groups": 2.0,
        "train/faults/env_errors": 1.0,
        "train/truncation/turn_cap": 4.0,
        "train/episodes": 24.0,
        "train/response_tokens": 100.0,
        "perf/total_num_tokens": 300.0,
        "timing_s/step": 5.0,
        "timing_s/gen": 3.0,
        "timing_s/train_total": 50.0,
    }
    return {"step": number, **row, **changes}


# --- what is counted


def test_counts_are_sums_over_the_steps():
    validation = {"step": 0, "val-env/Lake/success": 0.5, "val-env/faults/env_errors": 1.0, "timing_s/testing": 1.0}
    found = count([validation, step(1), step(2, **{"actor/skipped_steps": 1.0})])
    assert (found["steps"], found["episodes"], found["tokens_sampled"], found["tokens_trained"]) == (2, 48, 200, 600)
    groups = [found[name] for name in ("groups", "groups_trained", "groups_dropped", "groups_incomplete")]
    assert groups == [12, 6, 2, 4]
    assert found["faults"] == {"incomplete_groups": 4, "env_errors": 2} and found["truncations"] == {"turn_cap": 8}
    assert found["optimizer_steps_skipped"] == 1
    assert (found["validation"]["runs"], found["validation"]["faults"]) == (1, {"env_errors": 1})


def test_a_validation_that_lost_all_episodes_counts():
    lost = {"step": 0, "val-env/episodes": 8.0, "val-env/response_tokens": 5.0, "val-env/faults/env_errors": 8.0}
    assert count([lost])["validation"] == {
        "runs": 1,
        "tokens_sampled": 5,
        "faults": {"env_errors": 8},
        "truncations": {},
    }


def test_a_sum_hides_nothing_that_is_not_known():
    assert (total([1, 2.5]), total([]), total([1, None]), total([float("nan")])) == (3.5, 0, None, None)
    older = step(1)
    del older["rollout/filter_dropped_count"]
    found = count([older, step(2)])
    assert (found["groups_dropped"], found["groups"], found["groups_trained"]) == (None, None, 6)


def test_time_is_that_of_the_parts_and_what_was_done_twice_stands_beside():
    rows = [step(1), step(2, **{"timing_s/update_actor": 9.0})]
    found = summarize([attempt(), attempt()], {}, rows, dropped=[step(2)])["seconds"]
    assert found == {"attempts": 4.0, "steps": 10.0, "parts": {"update_actor": 9.0, "gen": 6.0}, "repeated": 5.0}
    killed = [attempt(seconds=None), attempt()]
    assert summarize(killed, {}, rows, [])["seconds"]["attempts"] is None


# --- runs


def test_a_finished_run_has_a_card_and_its_page(tmp_path):
    run = train(tmp_path, GRPO)
    card, rows = read_card(tmp_path), run.metrics
    assert card["ending"] == {
        "state": "finished",
        "reason": "all steps are done",
        "step": 2,
        "early_stop": None,
        "cause": "",
        "exit_code": 0,
    }
    assert card["seeds"] == read_yaml(tmp_path / "config.yaml")["seed"]
    assert card["config"]["sha256"] == hashlib.sha256((tmp_path / "config.yaml").read_bytes()).hexdigest()
    assert card["resumes"] == 0 and card["energy_j"] is None
    assert card["counts"]["episodes"] == 2 * 3 * 4 == sum(len(run.episodes(number)) for number in (1, 2))
    sampled = sum(len(turn.response_ids) for n in (1, 2) for episode in run.episodes(n) for turn in episode.turns)
    assert card["counts"]["tokens_sampled"] == sampled > 0
    assert card["counts"]["groups"] == 2 * 3
    levels = {episode.level for number in (1, 2) for episode in run.episodes(number)}
    assert card["levels"] >= len(levels)
    assert card["seconds"]["steps"] == pytest.approx(sum(row["timing_s/step"] for row in rows.values()))
    assert card["seconds"]["parts"].keys() >= {"gen", "update_actor", "testing"}
    page = (tmp_path / PAGE).read_text()
    assert "| energy | not measured: no GPU was used |" in page and "| state | finished |" in page


def test_a_killed_and_resumed_run_counts_every_step_once_and_its_attempts(tmp_path):
    process = start_process(tmp_path, *SHORT, "trainer.total_training_steps=60")
    assert kill_when(process, lambda: has_logged(tmp_path, 2))
    assert read_card(tmp_path)["attempts"][0]["state"] == "running"
    last = max(Run(tmp_path).metrics) + 1
    train(tmp_path, *SHORT, f"trainer.total_training_steps={last}")
    card = read_card(tmp_path)
    first, second = card["attempts"]
    assert (first["state"], second["state"], card["resumes"]) == ("killed", "finished", 1)
    assert card["counts"]["steps"] == last and card["counts"]["episodes"] == last * 12
    assert 1 <= second["from_step"] < last and second["to_step"] == last
    assert card["seconds"]["attempts"] is None, "nobody knows when the first one ended"
    assert "killed, from step 0" in (tmp_path / PAGE).read_text()


def test_an_early_stop_a_fault_and_a_signal_are_on_the_card(tmp_path, monkeypatch):
    stop = "actor_rollout_ref.rollout.rollout_filter_empty_stop_steps=1"
    none = "actor_rollout_ref.rollout.rollout_filter_include_zero=False"
    monkeypatch.setattr(BanditEnv, "step", lambda self, action: 1 / 0)
    train(tmp_path / "stopped", *SHORT, stop, none, "trainer.total_training_steps=9")
    card = read_card(tmp_path / "stopped")
    assert (card["ending"]["state"], card["ending"]["early_stop"]) == ("early_stopped", "empty_filtered_steps")
    assert card["counts"]["faults"]["env_errors"] == 12 and card["counts"]["groups_incomplete"] == 3
    assert "faults, training | env errors 12" in (tmp_path / "stopped" / PAGE).read_text()
    monkeypatch.undo()

    for name, error, state in (("failed", RuntimeError("boom"), "failed"), ("left", Interrupted(15), "interrupted")):
        trainer = build_trainer(small_config(tmp_path / name, *SHORT))
        assert trainer is not None

        def broken(number: int, error=error):
            raise error

        monkeypatch.setattr(trainer, "rollout", broken)
        with pytest.raises(type(error)):
            trainer.fit()
        card = read_card(tmp_path / name)
        assert (card["ending"]["state"], card["counts"]["steps"]) == (state, 0)
    assert card["ending"]["exit_code"] == 128 + signal.SIGTERM


# --- files that are not as they should be


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"attempts": 3}', '{"attempts": [1]}'])
def test_a_card_of_something_else_is_begun_anew(tmp_path, content):
    (tmp_path / CARD).write_text(content)
    begin_card(tmp_path, config_of_loggers(), device="cpu", from_step=7)
    RunDir(tmp_path).write_status("finished", step=9)
    end_card(tmp_path)
    assert len(read_card(tmp_path)["attempts"]) == 1
    assert "steps 1 to 7 are of another run, or of a version without cards" in (tmp_path / PAGE).read_text()


def test_a_run_of_an_earlier_version_gets_a_card_when_it_is_resumed(tmp_path):
    train(tmp_path, *SHORT, "trainer.total_training_steps=1")
    for name in (CARD, PAGE):
        (tmp_path / name).unlink()
    train(tmp_path, *SHORT, "trainer.total_training_steps=2")
    card = read_card(tmp_path)
    assert card["counts"]["steps"] == 2 and [each["from_step"] for each in card["attempts"]] == [1]


def test_a_card_that_cannot_be_written_does_not_stop_the_run(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("ragen.tracking.tracker.begin_card", lambda *_, **__: 1 / 0)
    run = train(tmp_path, *SHORT)
    assert run.status["state"] == "finished"
    assert "The card of the run is not written (ZeroDivisionError" in caplog.text


# --- energy


def test_energy_is_the_sum_of_the_attempts_or_not_measured(tmp_path, monkeypatch):
    readings = iter([{"GPU-a": 1000}, {"GPU-a": 4000}, {"GPU-a": 9000}, {"GPU-a": 9500}])
    monkeypatch.setattr(run_card, "used_gpus", lambda device, count: [Gpu(name="NVIDIA H200", uuid="GPU-a")])
    monkeypatch.setattr(run_card, "read_counters", lambda uuids: next(readings))
    for expected in (3.0, 3.5):
        begin_card(tmp_path, config_of_loggers(), device="cuda", from_step=0)
        assert "counters_mj" in read_card(tmp_path)["attempts"][-1]["energy"]
        RunDir(tmp_path).write_status("finished", step=1)
        end_card(tmp_path)
        assert read_card(tmp_path)["energy_j"] == expected
    assert "| GPUs | NVIDIA H200 |" in (tmp_path / PAGE).read_text()

    def refuse(uuids):
        raise NotMeasured("this GPU has no energy counter")

    monkeypatch.setattr(run_card, "read_counters", refuse)
    begin_card(tmp_path, config_of_loggers(), device="cuda", from_step=0)
    RunDir(tmp_path).write_status("finished", step=1)
    end_card(tmp_path)
    assert read_card(tmp_path)["energy_j"] is None
    assert "not measured in 1 of 3 attempts: this GPU has no energy counter" in (tmp_path / PAGE).read_text()


def test_the_card_is_json_without_nan(tmp_path):
    train(tmp_path, *SHORT, "trainer.test_freq=1")
    json.loads((tmp_path / CARD).read_text(), parse_constant=lambda name: pytest.fail(name))
