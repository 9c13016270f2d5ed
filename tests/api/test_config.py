"""Overrides as a dictionary mean what they mean as words; `import ragen` is quick."""

import doctest
import subprocess
import sys
from pathlib import Path

import pytest

import ragen
from ragen.api import config as module
from ragen.errors import ConfigError

ROOT = Path(__file__).parents[2]
TEXTS = ["plain", "It's", 'say "no"', r"a\b", r"ends\\", r"quote\'s", "a, b: [c] {d}", "two\nlines", "", " x ", "ä=1"]


@pytest.mark.parametrize("text", TEXTS)
def test_any_text_survives_as_a_value(text):
    added = {"env_type": "bandit", "max_actions_per_traj": 1, "env_instruction": text, "max_tokens": None}
    config = ragen.load_config("_1_bandit", {"custom_envs.Mine": added})
    assert config.custom_envs["Mine"].env_instruction == text


def test_a_dictionary_is_words():
    values = {"seed.train": None, "trainer.val_greedy": True, "trainer.logger": [], "algorithm.lam": 1e-3}
    words = ("seed.train=null", "trainer.val_greedy=True", "trainer.logger=[]", "algorithm.lam=0.001")
    assert ragen.load_config("quickstart", values) == ragen.load_config("quickstart", *words)
    config = ragen.load_config("quickstart", "seed.val=5", {"custom_envs.Bandit.max_tokens": 7, "seed.val": 6})
    assert (config.custom_envs["Bandit"].max_tokens, config.seed.val) == (7, 6), "the later one wins"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"trainer.test_frq": 5}, "Did you mean trainer.test_freq"),
        ({"algorithm.adv_estimator": len}, "A part of your own is named by its path: 'my_pkg.adv:loo'"),
    ],
)
def test_a_mistake_is_told(values, message):
    with pytest.raises(ConfigError, match=message):
        ragen.load_config("quickstart", values)


def test_the_examples_of_the_docstrings_hold():
    assert doctest.testmod(module).failed == 0


def test_import_ragen_loads_no_torch_and_nothing_heavy():
    code = "import sys, ragen; assert ragen.__all__ and 'Trainer' in dir(ragen); "
    code += "heavy = {'torch', 'numpy', 'hydra', 'yaml', 'ray'} & set(sys.modules); sys.exit(str(heavy or ''))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr.strip() == ""


def test_configurations_and_runs_are_read_without_torch(tmp_path):
    code = "import sys, ragen; ragen.load_config('quickstart'); ragen.load_run; ragen.make_env('bandit').reset(0); "
    code += "ragen.Agent, ragen.Trainer; sys.exit('torch was loaded' if 'torch' in sys.modules else 0)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_name_is_offered():
    for name in ragen.__all__:
        assert getattr(ragen, name) is not None
    assert set(ragen._HOMES) == set(ragen.__all__) - {"__version__"}
    with pytest.raises(AttributeError, match=r"no attribute 'Trainr'\. It offers: Agent"):
        ragen.Trainr  # noqa: B018
