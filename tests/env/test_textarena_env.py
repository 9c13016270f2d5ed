"""textarena by name: what a mistake is told, and how answers reach a game. Games are played in tests/env/adapters."""

import sys

import pytest

from ragen.env import make_env
from ragen.env.textarena.env import as_move, canonical, refuse_download
from ragen.errors import ConfigError, MissingExtra


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"name": "Mastermnd-v0"}, r"textarena.name 'Mastermnd-v0' is unknown. Did you mean Mastermind-v0\?"),
        ({"name": "Chess-v0"}, "textarena.name 'Chess-v0' is refused"),
        ({"name": "Wordle-v0"}, "needs the corpus words of NLTK, which would be fetched"),
        ({"name": "Mastermind-v0", "success": "reward"}, "textarena.success is 'reward'"),
    ],
)
def test_a_mistake_is_named_without_the_package(config: dict, message: str):
    with pytest.raises(ConfigError, match=message):
        make_env("textarena", config)


def test_without_the_package_the_install_command_is_given(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "textarena", None)
    monkeypatch.setitem(sys.modules, "nltk", None)
    with pytest.raises(MissingExtra, match=r"pip install -e '\.\[textarena\]'"):
        make_env("textarena", {"name": "Mastermind-v0"})


def test_a_move_stands_in_brackets():
    assert [as_move(text) for text in ("up", " [up] ", "I take [1 2]", "\ud800")] == [
        "[up]",
        "[up]",
        "I take [1 2]",
        "[?]",
    ]


def test_nothing_is_downloaded():
    assert refuse_download("words") is False


def test_a_state_is_the_same_text_in_every_process():
    class Card:
        def __init__(self) -> None:
            self.suit = "hearts"

    state = {"b": {3, 1, 2}, "a": [Card(), (1, None)]}
    assert canonical(state) == "{'a': [Card{'suit': 'hearts'}, [1, None]], 'b': {1, 2, 3}}"


def test_a_state_that_holds_itself_comes_to_an_end():
    state: dict = {}
    state["me"] = state
    assert canonical(state).count("me") == 20
