"""Every rule meets a run that has what it looks for, and one that has not."""

import json
from dataclasses import replace
from inspect import signature
from typing import Any

import pytest

from ragen.algorithms.advantage import ESTIMATORS
from ragen.cli import main
from ragen.config import load_config
from ragen.config.show import to_yaml
from ragen.tracking.advisories.health import Advisory, Health, read_health
from ragen.tracking.advisories.rules import DIVIDED, RULES, advise, reply_limits
from ragen.tracking.lock import run_lock
from ragen.tracking.rundir import RunDir
from tests.trainer.runs import train

CONFIG = {
    "algorithm.adv_estimator": "grpo",
    "es_manager.train.env_groups": 8,
    "es_manager.train.group_size": 16,
    "trainer.total_training_steps": 40,
}
GOOD = {
    "train/A/success": 0.5,
    "train/A/manager_invalid_action": 0.02,
    "train/A/num_turns": 2.0,
    "rollout/in_group_reward_std": 1.0,
    "incentive/valid_minus_invalid": 0.5,
    "actor/entropy": 0.8,
    "critic/vf_explained_var": 0.4,
    "rollout/logprob_mismatch_mean": 0.005,
    "train/truncation/reply_length": 2.0,
    "train/truncation/context": 0.0,
    "perf/peak_memory_share": 0.5,
    "timing_s/step": 3.0,
}
COLLAPSE = "collapse_first_turn_sample"
THOUGHTS = {
    f"{COLLAPSE}/mi_estimate": 0.5,
    f"{COLLAPSE}/reasoning_entropy_est": 2.0,
    f"{COLLAPSE}/retrieval_accuracy": 0.6,
    f"{COLLAPSE}/retrieval_chance_level": 0.125,
}


def run(start: dict[str, Any] | None = None, end: dict[str, Any] | None = None, *, steps: int = 30, **facts) -> Health:
    """Two halves of a run: its numbers at first and at last, where they differ from good ones."""
    halves = [GOOD | THOUGHTS | (start or {}), GOOD | THOUGHTS | (end or {})]
    rows = [{"step": 0, "val-env/A/success": 0.2}]
    rows += [{"step": step} | halves[step > steps // 2] for step in range(1, steps + 1)]
    validations = facts.pop("validations", (0.3, 0.4, 0.6))
    for success, step in zip(validations, (steps // 3, 2 * steps // 3, steps), strict=True):
        rows[step]["val-env/A/success"] = success
    return Health(rows=rows, config=CONFIG, levels={"A": 100}, **facts)


SILENT = {"train/A/manager_invalid_action": 0.4, "incentive/valid_minus_invalid": -0.2}
MUTE = {"train/A/manager_invalid_action": 0.95}
TEMPLATE = {f"{COLLAPSE}/mi_estimate": 0.01, f"{COLLAPSE}/retrieval_accuracy": 0.13}
MANY = {"train/A/num_actions": 3.0}
FEW = {"train/A/num_actions": 2.0, "train/truncation/turn_cap": 100.0}
BAD = {
    "form lost": [run(end=MUTE)],
    "silence pays": [run(end=SILENT), run(end=SILENT | MUTE)],
    "no form": [run(start=MUTE, end=MUTE)],
    "all fail": [run(end={"train/A/success": 0.0})],
    "no variance": [run(end={"rollout/in_group_reward_std": 0.05}), run(end={"rollout/in_group_reward_std": 0.0})],
    "template collapse": [run(end=TEMPLATE), run(end={f"{COLLAPSE}/retrieval_accuracy": 0.13})],
    "entropy collapse": [run(end={"actor/entropy": 0.02})],
    "few actions": [run(start=MANY, end=FEW)],
    "critic useless": [run(end={"critic/vf_explained_var": -0.1})],
    "mismatch": [run(end={"rollout/logprob_mismatch_mean": 0.05}), run(end={"rollout/logprob_mismatch_mean": 0.2})],
    "truncation": [run(end={"train/truncation/reply_length": 60.0}), run(end={"train/truncation/context": 30.0})],
    "failed": [run(state="failed"), run(state="failed", steps=0)],
    "stalled": [run(state="running", updated_at=0.0, now=700.0), run(state="killed", updated_at=0.0, now=1.0)],
    "memory": [run(end={"perf/peak_memory_share": 0.97})],
    "all solved": [run(end={"train/A/success": 1.0, "rollout/in_group_reward_std": 0.0})],
    "no progress": [run(validations=(0.2, 0.2, 0.2))],
}
FINE = {
    "form lost": [run(end=SILENT), run(end=SILENT | MUTE), run(start=MUTE, end=MUTE), run(end=MUTE, steps=4)],
    "silence pays": [
        run(end=SILENT | {"incentive/valid_minus_invalid": 0.1}),
        run(end=SILENT, steps=4),
        run(end=MUTE),
        *BAD["no form"],
    ],
    "no form": [run(end=MUTE), run(start=SILENT, end=SILENT)],
    "all fail": [run(end={"train/A/success": 0.05})],
    "no variance": [run(start={"rollout/in_group_reward_std": 0.1}, end={"rollout/in_group_reward_std": 0.05})],
    "template collapse": [run(end={f"{COLLAPSE}/mi_estimate": 0.3}), run(start=TEMPLATE, end=TEMPLATE)],
    "entropy collapse": [run(start={"actor/entropy": 0.09}, end={"actor/entropy": 0.05})],
    "few actions": [
        run(start=MANY, end=FEW | {"train/truncation/turn_cap": 20.0}),
        run(start=MANY, end=FEW | {"train/A/num_actions": 2.6}),
        run(start=FEW, end=FEW),
        # The form of replies is lost: where it is not, a turn has two actions as before.
        run(start=MANY, end=FEW | {"train/A/num_actions": 1.0, "train/A/manager_invalid_action": 0.75}),
        run(start=MANY, end=FEW | MUTE | {"train/A/num_actions": 0.0}),
        # 100 episodes of 384, because dropped groups were played again.
        run(start=MANY, end=FEW | {"train/episodes": 384.0}),
    ],
    "critic useless": [run(start={"critic/vf_explained_var": -0.5})],
    "mismatch": [run(start={"rollout/logprob_mismatch_mean": 0.5})],
    "truncation": [
        run(end={"train/truncation/reply_length": 20.0}),
        run(end=MUTE | {"train/truncation/reply_length": 200.0}),
    ],
    "failed": [run(state="finished"), run(state="interrupted")],
    "stalled": [
        run(state="running", updated_at=0.0, now=500.0),
        run(state="finished", updated_at=0.0, now=9e9),
        run(end={"timing_s/step": 300.0}, state="running", updated_at=0.0, now=1200.0),
    ],
    "memory": [run(start={"perf/peak_memory_share": 0.97})],
    "all solved": [run(end={"train/A/success": 0.95})],
    "no progress": [run(), run(validations=(0.2, 0.2, 0.2), steps=15)],
}


def test_replies_are_cut_by_the_limit_that_is_the_lower_one():
    """Two environments that ask for 100 and 300 tokens, and room for 200."""
    length = "actor_rollout_ref.rollout.response_length"
    config = {length: 200, "custom_envs.A.max_tokens": 100, "custom_envs.B.max_tokens": 300}
    assert reply_limits(config, ["A", "B"]) == f"{length}=200"
    enforced = config | {"agent_proxy.enforce_max_tokens": True}
    assert reply_limits(enforced, ["A"]) == "custom_envs.A.max_tokens=100"
    assert reply_limits(enforced, ["B"]) == f"{length}=200"
    assert reply_limits(enforced, ["A", "B"]) == f"custom_envs.A.max_tokens=100 and {length}=200"
    assert reply_limits(enforced, []) == f"{length}=200"
    short = config | {"es_manager.train.env_configs.tags": ["A"], "agent_proxy.enforce_max_tokens": True}
    (found,) = advise(replace(run(end={"train/truncation/reply_length": 60.0}), config=CONFIG | short))
    assert "cut by custom_envs.A.max_tokens=100" in found.evidence


def rules(run: Health) -> dict[str, Advisory]:
    return {each.rule: each for each in advise(run)}


def test_every_rule_is_tested():
    assert [rule.__name__.replace("_", " ") for rule in RULES] == [*BAD]
    assert [*FINE] == [*BAD]


@pytest.mark.parametrize("rule", BAD)
def test_a_rule_speaks_where_it_should(rule):
    for found in map(rules, BAD[rule]):
        assert rule in found, found
        assert "healthy" not in found
        assert found[rule].remedy and found[rule].evidence and 0 < found[rule].certainty <= 1


@pytest.mark.parametrize("rule", FINE)
def test_a_rule_is_silent_where_it_should_be(rule):
    for found in map(rules, FINE[rule]):
        assert rule not in found, found


def test_evidence_names_numbers_and_steps():
    found = rules(run(end=SILENT))["silence pays"]
    assert found.steps == (21, 30)
    assert found.evidence.startswith(
        "40% of the turns were invalid, and valid replies of the same groups earned 0.20 less"
    )
    assert str(found).startswith("alarm: silence pays (90% sure, steps 21 to 30). ")
    assert rules(run(end={"rollout/logprob_mismatch_mean": 0.2}))["mismatch"].severity == "alarm"
    assert rules(run(end=TEMPLATE))["template collapse"].certainty == 0.9


def test_shares_are_of_the_episodes_that_were_played_with_those_of_refills():
    refilled = {"train/episodes": 512.0, "train/truncation/turn_cap": 300.0, "train/truncation/reply_length": 512.0}
    found = rules(run(start=MANY, end=FEW | refilled))  # 128 configured, two turns each
    assert "59% of the episodes end because they are out of turns" in found["few actions"].evidence
    assert found["truncation"].evidence.startswith("50% of the replies are cut")


def test_a_run_whose_process_is_gone_is_not_called_healthy(tmp_path):
    folder = RunDir(tmp_path)
    for row in run().rows[1:]:
        folder.log(int(row["step"]), {name: value for name, value in row.items() if name != "step"})
    folder.write_status("running")
    with run_lock(tmp_path):
        assert [each.rule for each in advise(read_health(tmp_path))] == ["healthy"]
    (found,) = advise(read_health(tmp_path))
    assert found.rule == "stalled" and "process is gone" in found.evidence


def test_entropy_is_judged_by_the_token_however_the_loss_adds_tokens_up():
    mode = {"actor_rollout_ref.actor.loss_agg_mode": "seq-mean-token-sum"}
    shorter = run(
        start={"actor/entropy": 0.4, "entropy/turn_1": 0.8}, end={"actor/entropy": 0.05, "entropy/turn_1": 0.8}
    )
    assert "entropy collapse" in rules(shorter)
    assert "entropy collapse" not in rules(replace(shorter, config=CONFIG | mode))
    collapsed = run(
        start={"actor/entropy": 20.0, "entropy/turn_1": 0.8}, end={"actor/entropy": 0.5, "entropy/turn_1": 0.02}
    )
    assert "from 0.80 to 0.020 nats" in rules(replace(collapsed, config=CONFIG | mode))["entropy collapse"].evidence


def test_a_remedy_does_not_name_what_is_done_already():
    collapsed = run(end={"actor/entropy": 0.02})
    remedy = rules(collapsed)["entropy collapse"].remedy
    assert "actor.use_kl_loss=True" in remedy and "norm_adv_by_std_in_grpo=False" in remedy
    assert "kl_loss_coef=0.01" in remedy, "with base's coefficient of 0 the term holds nothing"
    done = {
        "actor_rollout_ref.actor.use_kl_loss": True,
        "actor_rollout_ref.actor.kl_loss_coef": 0.003,
        "algorithm.norm_adv_by_std_in_grpo": False,
    }
    remedy = rules(replace(collapsed, config=CONFIG | done))["entropy collapse"].remedy
    assert "kl_loss_coef (0.003 now)" in remedy
    assert "use_kl_loss" not in remedy and "norm_adv_by_std" not in remedy
    weighted = replace(collapsed, config=CONFIG | {"actor_rollout_ref.actor.kl_loss_coef": 0.1})
    assert "(actor_rollout_ref.actor.use_kl_loss=True)" in rules(weighted)["entropy collapse"].remedy
    few, metric = run(start=MANY, end=FEW), "actor_rollout_ref.rollout.rollout_filter_metric"
    assert f"({metric}=success_variance)" in rules(few)["few actions"].remedy
    few = replace(few, config=CONFIG | {metric: "success_variance"})
    assert metric not in rules(few)["few actions"].remedy
    ppo = replace(collapsed, config=CONFIG | {"algorithm.adv_estimator": "gae"})
    assert "norm_adv_by_std" not in rules(ppo)["entropy collapse"].remedy, "gae does not divide by it"


def test_the_deviation_is_spoken_of_where_an_estimator_divides_by_it():
    assert {name for name, compute in ESTIMATORS.items() if "norm_by_std" in signature(compute).parameters} == DIVIDED


def test_a_killed_run_is_resumed_by_a_command_that_resumes():
    killed = run(state="killed", updated_at=0.0, now=1.0)
    assert rules(killed)["stalled"].remedy == "The same command resumes from the newest checkpoint."
    anew = replace(killed, config=CONFIG | {"trainer.resume_mode": "disable"})
    assert "with trainer.resume_mode=auto, resumes" in rules(anew)["stalled"].remedy


def test_a_mismatch_is_answered_with_what_the_run_can_still_do():
    apart, rollout = run(end={"rollout/logprob_mismatch_mean": 0.2}), "actor_rollout_ref.rollout"

    def remedy(**keys) -> str:
        config = CONFIG | {f"{rollout}.{key}": value for key, value in keys.items()}
        return rules(replace(apart, config=config))["mismatch"].remedy

    # A cap beside the engine's log-probs is refused, so it is not advised there.
    assert remedy(old_log_probs="engine", name="vllm") == (
        f"Let the trainer compute them ({rollout}.old_log_probs=recompute), or use {rollout}.name=native."
    )
    assert remedy(name="native") == f"Weight tokens by their ratio ({rollout}.importance_cap=2)."
    assert remedy(name="native", importance_cap=2.0) == f"Lower {rollout}.importance_cap (2.0 now)."


def test_what_an_action_costs_is_a_key_of_sokoban_alone():
    few = run(start=MANY, end=FEW)
    tags = "es_manager.train.env_configs.tags"
    for env_type, key in {
        "sokoban": "(custom_envs.A.env_config.step_reward)",
        "frozen_lake": "(es_manager.reward_function)",
    }.items():
        played = replace(few, config=CONFIG | {tags: ["A"], "custom_envs.A.env_type": env_type})
        assert key in rules(played)["few actions"].remedy
    assert "(es_manager.reward_function)" in rules(few)["few actions"].remedy


def test_an_alarm_hides_tips_and_comes_first():
    found = advise(run(end={"train/A/success": 0.0, "actor/entropy": 0.01}, validations=(0.2, 0.2, 0.0)))
    assert [each.rule for each in found] == ["all fail", "entropy collapse"]
    assert "no progress" in rules(run(validations=(0.2, 0.2, 0.0)))


def test_nothing_wrong_is_healthy():
    [found] = advise(run())
    assert (found.rule, found.severity) == ("healthy", "healthy")
    assert str(found).startswith("healthy (50% sure, steps 21 to 30). Validation success went from 0.200 [")
    [empty] = advise(Health(rows=[], config={}))
    assert (empty.rule, empty.evidence) == ("healthy", "No step has been trained yet.")


def test_a_failed_run_is_not_healthy_and_says_why(tmp_path):
    folder = RunDir(tmp_path)
    for row in run().rows[1:]:
        folder.log(int(row["step"]), {name: value for name, value in row.items() if name != "step"})
    folder.write_status("failed", "NotFinite: No gradient was finite.\x1b[2J")
    (found,) = advise(read_health(tmp_path))
    assert str(found).startswith(
        "alarm: failed (100% sure, steps 21 to 30). It ended with an error: NotFinite: No gradient"
    )
    assert "\x1b" not in found.evidence


def test_the_command_reads_a_run(tmp_path, capsys):
    folder = RunDir(tmp_path / "run")
    folder.write_config(to_yaml(load_config("quickstart")))
    folder.write_status("running")
    for row in run(end={"train/A/success": 0.0}).rows:
        folder.log(row["step"], {name: value for name, value in row.items() if name != "step"})
    assert main(["diagnose", str(folder.path)]) == 0
    assert "alarm: all fail (90% sure, steps 21 to 30). Success was 0.000, with 98% of the turns valid." in (
        capsys.readouterr().out
    )
    assert main(["diagnose", str(folder.path), "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out)[str(folder.path)]
    assert (found["rule"], found["severity"], found["steps"]) == ("all fail", "alarm", [21, 30])
    later = read_health(folder.path, now=(folder.path / "metrics.jsonl").stat().st_mtime + 3600)
    assert "stalled" in {each.rule for each in advise(later)}
    assert main(["diagnose", str(tmp_path / "none")]) == 1
    assert "none" in capsys.readouterr().err


def test_a_real_run_is_read_and_says_so_at_its_end(tmp_path, capsys):
    finished = train(tmp_path / "run", "algorithm.adv_estimator=grpo", "trainer.total_training_steps=2")
    assert 0 < finished.metrics[1]["perf/peak_memory_share"] < 1
    assert [each.rule for each in advise(read_health(finished.path))] == ["healthy"]
