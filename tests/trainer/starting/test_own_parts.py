"""Runs with parts of one's own: they count, they are checked at the start, and a run with others is another run."""

import sys

import pytest

import ragen
from ragen.config import load_config
from ragen.trainer.starting.own_parts import check_own_parts
from ragen.trainer.starting.start import plan_start
from tests.api.own import COUNTER
from tests.trainer.runs import BANDIT, overrides, refused, small_config, train

OWN = "tests.api.own"
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
PARTS = (
    f"algorithm.adv_estimator={OWN}:loo",
    f"{ACTOR}.policy_loss={OWN}:my_loss",
    f"{ROLLOUT}.rollout_filter_strategy={OWN}:keep_all",
    f"es_manager.reward_function={OWN}:half_reward",
    f"trainer.metric_function={OWN}:lengths",
)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    return train(tmp_path_factory.mktemp("own") / "run", *PARTS)


def test_every_part_counts(own, tmp_path):
    """The loss is PPO's under another name, the estimator RLOO's, and the filter keeps all."""
    built_in = train(tmp_path, "algorithm.adv_estimator=rloo", f"es_manager.reward_function={OWN}:half_reward")
    assert own.metrics[1]["own/train/longest_reply"] >= own.metrics[1]["own/train/mean_reply"] > 0
    assert own.metrics[0]["own/val-env/mean_reply"] > 0
    for step, row in built_in.outcomes.items():
        found = {name: value for name, value in own.outcomes[step].items() if not name.startswith("own/")}
        assert found == pytest.approx(row, rel=1e-5, abs=1e-6), f"step {step}"


def test_a_reward_function_changes_the_last_turn(own):
    for episode in own.episodes(1):
        last = episode.turns[-1]
        assert last.info["reward_change"] == -episode.reward, "half of it is left"
    assert own.metrics[1]["train/Bandit/reward"] > 0


def test_a_run_is_continued_with_the_parts_it_began_with(own):
    changed = refused(own.path, *PARTS, f"{ACTOR}.policy_loss=ppo", env=BANDIT)
    assert f"{ACTOR}.policy_loss: {OWN}:my_loss -> ppo" in changed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (f"algorithm.adv_estimator={OWN}:undeclared", "@ragen.needs('values')"),
        (f"{ACTOR}.policy_loss={OWN}:no_gradient", "no gradient flows"),
        (f"{ROLLOUT}.rollout_filter_strategy={OWN}:keep_twice", "of 3 groups it chose [0, 0]"),
        (f"es_manager.reward_function={OWN}:no_reward", "cannot be called with one argument"),
        (f"trainer.metric_function={OWN}:absent", f"{OWN} has no absent"),
        (f"trainer.logger=[{OWN}:loo]", "cannot be called with one argument"),
        (f"custom_envs.Bandit.env_type={OWN}:loo", "it is not a class of that kind"),
        (f"custom_envs.Bandit.env_type={OWN}:Broken", "level 123 does not start: OSError: no board today"),
        (f"custom_envs.Bandit.env_type={OWN}:Mute", "tried on level 123: step returned an info without 'success'"),
        (f"custom_envs.Bandit.env_type={OWN}:Loud", "AttributeError: 'Rng' object has no attribute 'randint'"),
    ],
)
def test_a_part_that_cannot_work_is_refused_before_the_run(tmp_path, change, message):
    key, _, name = change.partition("=")
    extra = ("custom_envs.Bandit.env_config=null",) if key.startswith("custom_envs") else ()
    found = refused(tmp_path, change, *extra, env=BANDIT)
    assert message in found and found.startswith(key) and name.strip("[]") in found
    assert not (tmp_path / "config.yaml").exists()


def test_an_estimator_that_needs_values_has_a_critic(tmp_path):
    config = small_config(tmp_path, f"algorithm.adv_estimator={OWN}:above_values")
    check_own_parts(config)
    assert config.uses_critic
    found = refused(tmp_path, f"algorithm.adv_estimator={OWN}:above_values", "critic.enable=False")
    assert found.startswith("critic.enable is False") and "needs values" in found


def test_what_ranks_cannot_import_is_refused(tmp_path):
    change = ("algorithm.adv_estimator=__main__:loo", "trainer.n_gpus_per_node=2", "system.CUDA_VISIBLE_DEVICES='0,1'")
    with pytest.raises(ragen.ConfigError, match="processes of several devices cannot import from the running program"):
        check_own_parts(small_config(tmp_path, *change))


def test_an_environment_of_ones_own_is_trained_on(tmp_path):
    words = overrides(tmp_path, "model_path=tiny/bandit", "es_manager.train.env_configs.tags=[Counter]", env=BANDIT[1:])
    config = ragen.load_config("base", {"custom_envs.Counter": COUNTER}, *words)
    [first, second] = ragen.Trainer(config)
    assert second.metrics["train/Counter/num_actions"] <= 1 == first.metrics["train/Counter/num_turns"]
    assert load_config("config", (), tmp_path).custom_envs["Counter"].env_type == COUNTER["env_type"]


@pytest.mark.parametrize(
    ("tag", "hidden", "message"),
    [
        ("TextWorld", "textworld", r"^custom_envs\.TextWorld: env_type textworld needs TextWorld.*\[textworld\]"),
        ("MiniGrid", "gymnasium", r"^custom_envs\.MiniGrid\.env_config\.env_id.*needs MiniGrid.*\[minigrid\]"),
    ],
)
def test_an_environment_of_a_package_that_is_missing_is_refused_before_the_run(
    tmp_path, monkeypatch, tag, hidden, message
):
    monkeypatch.setitem(sys.modules, hidden, None)
    changes = (f"es_manager.train.env_configs.tags=[{tag}]", f"trainer.default_local_dir={tmp_path}/run")
    config = load_config("adapters", [*changes, "trainer.logger=[]", "model_path=tiny/sokoban"])
    with pytest.raises(ragen.errors.MissingExtra, match=message):
        plan_start(config)
    assert not (tmp_path / "run").exists()
