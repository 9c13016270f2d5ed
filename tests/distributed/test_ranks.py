"""What is refused before any rank starts."""

import pytest

from ragen.errors import ConfigError, MissingExtra
from ragen.trainer.starting.start import plan_start
from tests.trainer.runs import small_config


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("trainer.n_gpus_per_node=2", "n_gpus_per_node=2"),
        ("critic.fsdp_config.offload_policy=True", r"offload_policy=True \(critic\)"),
    ],
)
def test_without_ray_sharded_models_are_refused_before_anything_starts(change, named, tmp_path, monkeypatch):
    monkeypatch.setattr("ragen.trainer.starting.start.importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=rf"{named}.*pip install -e '\.\[ray\]'"):
        plan_start(small_config(tmp_path / "run", change))
    assert not (tmp_path / "run").exists()


def test_the_offload_keys_of_other_code_bases_name_ours(tmp_path):
    with pytest.raises(ConfigError, match=r"actor\.fsdp_config\.offload_policy=True moves weights"):
        small_config(tmp_path, "actor_rollout_ref.actor.fsdp_config.param_offload=True")
