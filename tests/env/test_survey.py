"""What was tried of a package is data: names that work, names that do not and why, and nothing is imported for it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ragen.env.reasoning_gym.env import SURVEY as TASKS
from ragen.env.survey import Survey, read_survey, shown
from ragen.env.textarena.env import SURVEY as GAMES
from ragen.errors import ConfigError

SMALL = Survey(package="puzzles", version="1.2", allowed=("maze", "chess"), refused={"lotto": "it needs the network"})


def test_a_name_that_works_passes():
    assert SMALL.check("maze", "puzzles.name") is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mase", r"puzzles.name 'mase' is unknown. Did you mean maze\? Choose from: maze, chess."),
        ("lotto", r"puzzles.name 'lotto' is refused: it needs the network \(tried with puzzles 1.2\)"),
        ("", "puzzles.name '' is unknown. Choose from"),
    ],
)
def test_another_name_is_answered_with_the_reason(name: str, message: str):
    with pytest.raises(ConfigError, match=message):
        SMALL.check(name, "puzzles.name")


def test_of_many_names_the_first_are_shown():
    assert shown(tuple(f"n{i}" for i in range(14))).endswith("n10, n11 and 2 more (docs/adapters.md)")


def test_a_survey_is_read_from_its_file(tmp_path: Path):
    file = tmp_path / "tasks.json"
    file.write_text(json.dumps({"package": "p", "version": "1", "allowed": ["a"], "refused": {"b": "no"}}))
    assert read_survey(file) == Survey(package="p", version="1", allowed=("a",), refused={"b": "no"})


def test_the_generators_whose_own_answers_score_0_are_refused():
    assert {"boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"} <= TASKS.refused.keys()
    assert len(TASKS.allowed) + len(TASKS.refused) == 106


def test_no_name_is_both():
    for survey in (TASKS, GAMES):
        assert not set(survey.allowed) & set(survey.refused)
        assert list(survey.allowed) == sorted(survey.allowed)


def test_the_adapters_are_imported_without_their_packages():
    code = (
        "import sys, ragen.env.reasoning_gym, ragen.env.textarena, ragen.env.textworld, ragen.env.openenv, "
        "ragen.env.gymnasium\n"
        "heavy = {'numpy', 'reasoning_gym', 'textarena', 'textworld', 'websockets', 'starlette', 'gymnasium'}\n"
        "print(heavy & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_page_says_what_works_and_what_does_not():
    page = (Path(__file__).parents[2] / "docs" / "adapters.md").read_text()
    assert f"{len(TASKS.allowed)} of {len(TASKS.allowed) + len(TASKS.refused)} generators" in page
    assert f"{len(GAMES.allowed)} of {len(GAMES.allowed) + len(GAMES.refused)} ids" in page
    missing = [name for name in (*TASKS.refused, *GAMES.allowed) if name not in page]
    assert not missing
