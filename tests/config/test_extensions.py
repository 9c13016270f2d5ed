"""Names of one's own: what is accepted, what is imported and when, and what each mistake is told."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ragen.config import load_config
from ragen.config.estimators import declaration, needs
from ragen.config.extensions import entry_points, is_path, load
from ragen.config.load import load_run_config
from ragen.config.show import to_yaml
from ragen.errors import ConfigError
from tests.api.own import install_points

KEY = "algorithm.adv_estimator"


@pytest.fixture
def write_module(tmp_path, monkeypatch):
    """Writes a module into the working directory; names are used once, as modules stay imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(name: str, source: str) -> None:
        path = tmp_path / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)

    return write


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Installs a package that is nothing but entry points."""

    def install(**points: str) -> None:
        install_points(tmp_path, points)
        monkeypatch.syspath_prepend(tmp_path)

    return install


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("my_pkg.adv:loo", True),
        ("a:B.c", True),
        ("grpo", False),
        ("my_pkg.adv", False),
        ("a b:c", False),
        ("a:", False),
    ],
)
def test_a_path_has_a_module_and_a_name(name, expected):
    assert is_path(name) is expected


def test_a_module_in_the_working_directory_is_found(write_module):
    write_module("own_folder_pkg.adv", "def loo(token_rewards): ...")
    assert load("estimators", "own_folder_pkg.adv:loo", KEY).__name__ == "loo"


def test_an_entry_point_is_a_name_like_those_built_in(write_module, installed):
    write_module("own_point", "def loo(token_rewards): ...")
    installed(loo="own_point:loo")
    assert list(entry_points("estimators")) == ["loo"]
    assert load_config("quickstart", [f"{KEY}=loo"]).algorithm.adv_estimator == "loo"
    assert load("estimators", "loo", KEY).__module__ == "own_point"
    with pytest.raises(
        ConfigError, match=r"'lo' \(str\) is not a choice\. Did you mean loo\? Choose from: gae, .*, loo"
    ):
        load_config("quickstart", [f"{KEY}=lo"])


def test_a_configuration_is_read_without_its_parts(write_module, tmp_path):
    """Looking at somebody's run imports nothing that it names."""
    write_module("own_trap", "raise RuntimeError('imported')")
    names = (
        f"{KEY}=own_trap:a",
        "actor_rollout_ref.actor.policy_loss=own_trap:b",
        "actor_rollout_ref.rollout.rollout_filter_strategy=own_trap:c",
        "trainer.logger=[console,own_trap:D]",
        "custom_envs.Bandit.env_type=own_trap:E",
    )
    config = load_config("quickstart", names)
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    assert load_run_config((), tmp_path) == config
    assert "own_trap" not in sys.modules


def test_what_an_estimator_needs_is_declared_on_it(write_module):
    write_module(
        "own_needs",
        "from ragen.config.estimators import needs\n"
        "@needs('values', 'turns')\ndef both(token_rewards, values, turn_ids): ...\n"
        "def none(token_rewards): ...\n"
        "def wrong(token_rewards): ...\nwrong.needs = ['value']\n",
    )
    assert declaration("own_needs:both").needs == {"values", "turns"}
    assert load_config("quickstart", [f"{KEY}=own_needs:both"]).uses_critic
    assert not load_config("quickstart", [f"{KEY}=own_needs:none"]).uses_critic
    with pytest.raises(ConfigError, match=r"own_needs:wrong: its attribute needs is \['value'\].*@ragen.needs"):
        declaration("own_needs:wrong")
    with pytest.raises(ValueError, match=r"'value'.*is unknown"):
        needs("value")  # type: ignore[arg-type]


MISTAKES = {
    "own_absent:a": r"there is no module own_absent, neither on Python's path nor in .*start the command in the folder",
    "own_found.absent:a": r"there is no module own_found\.absent",
    "own_needy:a": r"importing own_needy failed: No module named 'not_installed_here'\. Install what it needs",
    "own_broken:a": r"importing own_broken failed with ZeroDivisionError: .*python -c 'import own_broken'",
    "own_exits:a": r"importing own_exits failed with SystemExit: 1",
    "own_found:loop": r"own_found has no loop\. Did you mean loo\? It must be a function of fields of AdvantageInputs",
    "own_found:seven": r"own_found:seven is 7 \(int\), which cannot be called\. It must be a function",
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_names_key_value_and_remedy(write_module, name):
    write_module("own_found", "def loo(token_rewards): ...\nseven = 7")
    write_module("own_needy", "import not_installed_here")
    write_module("own_broken", "1 / 0")
    write_module("own_exits", "import sys; sys.exit(1)")
    with pytest.raises(ConfigError, match=MISTAKES[name]) as error:
        load("estimators", name, KEY)
    assert str(error.value).startswith(f"{KEY}={name}")


def test_bi_level_gae_is_not_for_an_estimator_of_ones_own():
    with pytest.raises(ConfigError, match=r"bi_level_gae is True, but algorithm\.adv_estimator is own:x"):
        load_config("quickstart", [f"{KEY}=own:x", "algorithm.bi_level_gae=True"])


def test_the_console_script_finds_modules_of_the_working_directory(write_module, tmp_path):
    """Its own folder, not the working directory, comes first on Python's path."""
    write_module("own_script", "def loo(token_rewards): ...")
    code = "import sys; sys.path = [p for p in sys.path if p]; from ragen.config.extensions import load; "
    code += f"print(load('estimators', 'own_script:loo', '{KEY}').__name__)"
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, env=env)
    assert (done.stdout, done.returncode) == ("loo\n", 0), done.stderr
