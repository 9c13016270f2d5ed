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
