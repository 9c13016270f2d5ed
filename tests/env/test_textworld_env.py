"""textworld: what a mistake is told. Games are made and played in tests/env/adapters."""

import sys

import pytest

from ragen.env import make_env
from ragen.env.textworld.env import COMMAND, PROMPT
from ragen.env.textworld.games import games_folder
from ragen.errors import ConfigError, MissingExtra


def test_a_mistake_is_named_without_the_package():
    with pytest.raises(ConfigError, match=r"Did you mean textworld.num_rooms"):
        make_env("textworld", {"num_room": 2})
    with pytest.raises(ConfigError, match=r"textworld.quest_length is 0. Set it to a number from 1 to 10"):
        make_env("textworld", {"quest_length": 0})


def test_without_the_package_the_install_command_is_given(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "textworld", None)
    with pytest.raises(MissingExtra, match=r"pip install -e '\.\[textworld\]'"):
        make_env("textworld")


def test_two_commands_in_one_are_none():
    assert COMMAND.fullmatch("take the old key from the box")
    assert not any(COMMAND.fullmatch(text) for text in ("look. save", "look, then quit", "", "save;", "\ud800", "é"))


def test_what_the_interpreter_shows_is_cut_off():
    text = "You close it.\n\n\nWould you like to RESTART, RESTORE a saved game, QUIT or UNDO?\n>      -= Bar =-0/5"
    assert PROMPT.sub("", text).strip() == "You close it."
    assert PROMPT.sub("", "A sign:\n>>> north\nThe end.") == "A sign:\n>>> north\nThe end."


def test_games_lie_in_the_users_cache(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("RAGEN_GAMES", raising=False)
    assert games_folder().parts[-3:] == (".cache", "ragen", "textworld")
    monkeypatch.setenv("RAGEN_GAMES", "/somewhere")
    assert str(games_folder()) == "/somewhere"
