"""`ragen config` prints the whole tree, explained, in a form that can be used again."""

import dataclasses
import json
from pathlib import Path
from typing import get_type_hints

import pytest
import yaml

from ragen.cli import main
from ragen.config import Config, build_config, load_config
from ragen.config.load import to_dict
from ragen.config.schema import EnvTag
from ragen.config.show import sentences, to_flow, to_yaml


def schema_classes(cls: type = Config) -> list[type]:
    """The class and all that its fields hold."""
    nested = [hint for hint in get_type_hints(cls).values() if dataclasses.is_dataclass(hint)]
    return [cls, *(found for hint in nested for found in schema_classes(hint))]


@pytest.mark.parametrize("name", ["base", "_1_bandit", "quickstart"])
def test_the_printed_yaml_reads_back_to_the_same_config(name: str):
    config = load_config(name)
    assert build_config(yaml.safe_load(to_yaml(config))) == config


def test_the_printed_yaml_is_a_config_file_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture):
    assert main(["config", "--config-name", "_3_frozen_lake", "trainer.experiment_name='1e-6'"]) == 0
    (tmp_path / "copy.yaml").write_text(capsys.readouterr().out)
    again = load_config("copy", ["seed.train=5"], tmp_path)
    expected = load_config("_3_frozen_lake", ["trainer.experiment_name='1e-6'", "seed.train=5"])
    assert again == expected


def test_json_is_the_plain_tree(capsys: pytest.CaptureFixture):
    assert main(["config", "--json", "seed.train=5"]) == 0
    assert json.loads(capsys.readouterr().out) == to_dict(load_config("base", ["seed.train=5"]))


def test_a_mistake_is_one_message_and_exit_status_1(capsys: pytest.CaptureFixture):
    assert main(["config", "seed.trian=5"]) == 1
    message = "error: seed.trian: unknown key. Did you mean seed.train? All keys: ragen config\n"
    assert capsys.readouterr().err == message


def test_every_key_has_a_sentence_and_every_section_a_docstring():
    for cls in [*schema_classes(), EnvTag]:
        assert not (cls.__doc__ or "").startswith(f"{cls.__name__}("), f"{cls.__name__} has no docstring"
        hints = get_type_hints(cls)
        for name, sentence in sentences(cls).items():
            if not dataclasses.is_dataclass(hints[name]):
                assert sentence.endswith("."), f"{cls.__name__}.{name}: {sentence!r}"


def test_the_schema_holds_no_values():
    for cls in schema_classes():
        for field in dataclasses.fields(cls):
            assert field.default is dataclasses.MISSING, f"{cls.__name__}.{field.name}: write the value in YAML"


def test_choices_are_listed_beside_their_key():
    line = next(line for line in to_yaml(load_config()).splitlines() if "lr_scheduler_type" in line)
    assert line.endswith("Choices: constant, cosine.")


@pytest.mark.parametrize(
    "value", ["", "yes", "null", "1e-6", "0x1", "a: b", "# x", "√", "a b", True, None, 1e-6, 3, [1, "a"]]
)
def test_a_value_on_one_line_reads_back(value: object):
    assert yaml.safe_load(to_flow(value)) == value
