"""No wrong override is taken, none ends in a traceback: each is one short message."""

import os
import random
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ragen.config import load_config
from ragen.errors import RagenError
from ragen.trainer.starting.start import plan_start
from tests.config.wrong_overrides import wrong_overrides

REPOSITORY = Path(__file__).parents[2]
CPU_SECONDS = 2
LISTED = wrong_overrides()[::2]
NUM_CHUNKS = 16


def complaint(override: str) -> str:
    """What is wrong with how an override is refused; empty when nothing is."""
    started = time.process_time()
    try:
        plan_start(load_config("quickstart", [override]))
        return f"{override}: was taken"
    except RagenError as error:
        text = str(error)
    except Exception as error:
        return f"{override}: {type(error).__name__}: {error}"
    if len(text) > 1000 or "\n" in text.strip():
        return f"{override}: a message of {len(text)} characters: {text[:200]}"
    seconds = time.process_time() - started
    return f"{override}: took {seconds:.1f} s of processor time" if seconds > CPU_SECONDS else ""


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    yield
    assert not list(tmp_path.iterdir()), "a refused configuration leaves nothing behind"


def test_the_list_is_long_and_its_base_is_fine(tmp_path):
    assert len(LISTED) > 3000
    assert plan_start(load_config("quickstart")).step == 0


def test_a_sample_of_wrong_overrides_is_refused_in_one_line():
    assert list(filter(None, map(complaint, random.Random(0).sample(LISTED, 30)))) == []


def test_a_tag_that_is_not_played_names_its_environment_too():
    assert complaint("custom_envs.Bandit.env_type=''") == ""


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(NUM_CHUNKS))
def test_every_wrong_override_is_refused_in_one_line(chunk: int):
    assert list(filter(None, map(complaint, LISTED[chunk::NUM_CHUNKS]))) == []


@pytest.mark.slow
def test_the_command_line_refuses_a_sample_within_two_seconds():
    for override in random.Random(1).sample(LISTED, 60):
        before = child_seconds()
        done = subprocess.run(
            [sys.executable, REPOSITORY / "train.py", "--config-name", "quickstart", override],
            env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1, override
        assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1, f"{override}: {done.stderr}"
        assert child_seconds() - before < CPU_SECONDS, override


def child_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
