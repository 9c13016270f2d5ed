"""The help of `ragen train`: twenty keys with their values and meanings."""

from ragen.cli import main
from ragen.config.common import COMMON_KEYS, help_of_keys, look_up
from ragen.config.load import load_config


def test_a_key_has_the_value_of_base_and_its_sentence():
    value, sentence = look_up(load_config("base"), "trainer.test_freq")
    assert value == 10
    assert "validat" in sentence.lower()


def test_twenty_keys_each_with_value_and_meaning():
    lines = help_of_keys().splitlines()
    shown = [line.strip().partition("=")[0] for line in lines if line.startswith("  ") and line[2] != " "]
    assert shown == list(COMMON_KEYS)
    assert len(set(shown)) == 20
    for number, line in enumerate(lines):
        if line.startswith("  ") and line[2] != " ":
            assert lines[number + 1].startswith("      "), f"{line} has no sentence"


def test_the_help_of_train_ends_with_them(capsys):
    try:
        main(["train", "--help"])
    except SystemExit as end:
        assert end.code == 0
    out = capsys.readouterr().out
    assert out.startswith("usage: ragen train ")
    assert out.rstrip().endswith(help_of_keys().splitlines()[-1])
