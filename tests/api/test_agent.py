"""A model plays chosen levels, and is evaluated as `ragen eval` does."""

import shutil
import subprocess
import sys

import pytest

import ragen
from ragen.errors import ConfigError, ModelUnavailable
from ragen.evaluation.command import run_evaluation
from ragen.models.resolve import TINY_ROOT
from tests.api.own import COUNTER

SMALL = ("es_manager.val.env_groups=4", "es_manager.val.env_configs.n_groups=[2,2]")


@pytest.fixture(scope="module")
def agent():
    with ragen.Agent("tiny", ragen.load_config("_1_bandit", *SMALL)) as agent:
        yield agent


def test_levels_are_played_by_their_seeds(agent):
    episodes = agent.play(seed=7, num_levels=2, group_size=2)
    assert [(episode.seed, episode.member) for episode in episodes] == [(7, 0), (7, 1), (8, 0), (8, 1)]
    assert episodes == agent.play("Bandit", seed=7, num_levels=2, group_size=2), "the same levels and the same noise"
    assert all(episode.turns[0].text and episode.turns[0].logprobs for episode in episodes)
    [greedy], [again] = (agent.play(seed=9, greedy=True) for _ in range(2))
    assert greedy.turns[0].response_ids == again.turns[0].response_ids


def test_an_evaluation_is_that_of_the_command(agent, tmp_path):
    config = ragen.load_config("_1_bandit", "model_path=tiny", *SMALL)
    expected = run_evaluation(config, tmp_path, modes=("sampled", "greedy"), has_references=True)
    found = agent.evaluate(("sampled", "greedy"), references=True)
    assert [result.policy for result in found] == ["sampled T=0.5", "greedy", "random", "solver"]
    assert found == expected
    assert found[-1].success.mean == found[-1].metrics["Bandit/success"] == 1.0


def test_an_environment_of_ones_own_is_played(tmp_path):
    config = ragen.load_config("_1_bandit", {"custom_envs.Counter": COUNTER})
    with ragen.Agent("tiny/bandit", config) as agent:
        [episode] = agent.play("Counter", seed=3)
    assert (episode.env_type, episode.turns[0].observation) == ("tests.api.own:Counter", "Say 3.")


def test_an_unknown_tag_is_refused_before_the_model_is_loaded():
    with pytest.raises(ConfigError, match=r"tag 'Bandid' is not in custom_envs\. Choose from"):
        ragen.Agent("tiny").play("Bandid")


def test_tiny_is_the_embedded_model_of_what_is_played():
    small = ("es_manager.val.env_groups=4", "actor_rollout_ref.rollout.response_length=48")
    config = ragen.load_config("quickstart", *small)
    with ragen.Agent("tiny", config) as fresh:
        expected = fresh.evaluate(("greedy",))
    with ragen.Agent("tiny", config) as agent:
        assert "<answer>" in agent.play("Bandit", seed=1, greedy=True)[0].turns[0].text
        bandit = agent._proxy
        assert agent.play("BanditTest") and agent._proxy is bandit, "one model plays both"
        assert agent.evaluate(("greedy",)) == expected
        with pytest.raises(ConfigError, match="No embedded model plays countdown"):
            agent.play("Countdown")


def test_a_model_that_does_not_exist_is_refused_at_once(tmp_path):
    code = f"""
import sys, ragen
config = ragen.load_config("quickstart")
for name in ("nope", "tiny/chess", "./nowhere", {str(tmp_path)!r}):
    try:
        ragen.Agent(name, config)
        raise SystemExit(name + " was taken")
    except ragen.RagenError:
        pass
ragen.Agent("tiny", config), ragen.Agent("tiny/bandit", config)
ragen.Agent("gpt", ragen.load_config("quickstart", "actor_rollout_ref.rollout.name=api"))
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(ModelUnavailable, match="'nope' is neither a local directory nor"):
        ragen.Agent("nope")


def test_a_checkpoint_brings_its_configuration(tmp_path):
    folder = shutil.copytree(TINY_ROOT / "bandit", tmp_path / "run" / "global_step_3" / "actor")
    from ragen.config.show import to_yaml

    (tmp_path / "run" / "config.yaml").write_text(to_yaml(ragen.load_config("_1_bandit", "seed.val=77")))
    for model in (tmp_path / "run", folder):
        config = ragen.Agent(model).config
        assert (config.seed.val, config.actor_rollout_ref.model.path) == (77, str(folder))
    assert ragen.Agent("tiny").config.seed.val == ragen.load_config("eval").seed.val
