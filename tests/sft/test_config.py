"""Keys of supervised training."""

import pytest

from ragen.errors import ConfigError
from ragen.sft.config import SftConfig, load_sft
from tests.sft.supervised import configured


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("sft.seed=10100", "sft.seed=10100: the demonstrated levels 10100 to 10131 overlap the levels 10000 to 11599"),
        ("sft.seed=120", "of seed.val"),
        ("sft.epochs=0", "epochs is 0"),
        ("sft.noise=2", "noise is 2.0"),
        ("sft.epoch=2", "sft.epoch: unknown key. Did you mean sft.epochs?"),
        ("sft.epochs=two", "sft.epochs: expected an integer"),
        ("sft.max_length=64", "no room for a prompt"),
        ("seed.train=null", "seed.train is null"),
    ],
)
def test_wrong_keys_are_refused(change, message):
    with pytest.raises(ConfigError) as error:
        configured(change)
    assert message in str(error.value)


def test_every_key_of_the_yaml_is_a_field():
    _, sft = load_sft()
    assert isinstance(sft, SftConfig)
    assert (sft.optim.lr_scheduler_type, sft.optim.betas, sft.optim.lr_warmup_steps_ratio) == (
        "cosine",
        (0.9, 0.95),
        0.1,
    )


def test_a_config_may_bring_its_own_section(tmp_path):
    """config/sft/<name>.yaml belongs to config/<name>.yaml; overrides come last."""
    _, plain = load_sft("real_sokoban")
    config, sft = load_sft("real_sokoban_warm", ["sft.epochs=3"])
    assert config.es_manager.train.env_configs.tags == ("CoordSokoban",)
    assert (plain.output_dir, plain.epochs) == ("models/sft", 5)
    assert (sft.output_dir, sft.epochs, sft.batch_size) == ("models/real_sokoban_warm", 3, 64)
    assert sft.optim.betas == plain.optim.betas
    (tmp_path / "sft").mkdir()
    (tmp_path / "mine.yaml").write_text("defaults: [real_sokoban, _self_]\n")
    (tmp_path / "sft" / "mine.yaml").write_text("defaults: [sft/sft@_global_, _self_]\nsft: {epochs: 7}\n")
    assert load_sft("mine", ["sft.val_size=8"], str(tmp_path))[1].epochs == 7
