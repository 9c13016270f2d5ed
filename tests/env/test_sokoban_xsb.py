"""Sokoban levels from text files: what is read, what is refused, and which seed plays which level."""

import logging
from functools import partial
from pathlib import Path

import pytest

from ragen.env import check_env, make_env
from ragen.env.registry import check_options, data_facts
from ragen.env.sokoban import env as sokoban_env
from ragen.env.sokoban.env import SokobanConfig, SokobanEnv
from ragen.env.sokoban.solver import search
from ragen.env.sokoban.xsb import OWN_LEVELS, blocks, content_hash, read_levels, to_level, to_text
from ragen.errors import ConfigError
from tests.env.helpers import room

COLLECTION = """\
Rooms of our own
Author: nobody

; 0
#####
#@$.#
#####

    ####
#####  #
#.  $  #
#  -_@ #
########
Title: #2, the long one

; 3
#######
#+ $* #
#  $. #
#######
"""
UP, DOWN, LEFT, RIGHT = 1, 2, 3, 4


@pytest.fixture
def collection(tmp_path: Path) -> str:
    path = tmp_path / "rooms.xsb"
    path.write_text(COLLECTION)
    return str(path)


def one(*rows: str):
    [block] = blocks("\n".join(rows), "here")
    return to_level(block, "here")


def test_a_collection_is_read_in_its_order(collection):
    levels = read_levels(collection, "all")
    assert [(level.rows, level.columns) for level in levels] == [(3, 5), (5, 8), (4, 7)]
    assert levels[0] == room("#####", "#PXO#", "#####")
    assert levels[1] == room("########", "#####__#", "#O__X__#", "#____P_#", "########")
    assert levels[2] == room("#######", "#S_X√_#", "#__XO_#", "#######")


def test_levels_are_written_as_they_are_read(collection):
    for level in read_levels(collection, "all"):
        assert one(*to_text(level).split("\n")) == level


def test_windows_line_ends_a_byte_order_mark_and_doubles_change_nothing(tmp_path, collection):
    path = tmp_path / "windows.xsb"
    path.write_bytes(b"\xef\xbb\xbf" + (COLLECTION + "\n" + COLLECTION).replace("\n", "\r\n").encode())
    assert read_levels(str(path), "all") == read_levels(collection, "all")


def test_what_nobody_reaches_is_wall():
    level = one("#######", "#@$.# #", "#####*#", "    ###")
    assert level == room("#####", "#PXO#", "#####")


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (("####", "#$.#", "####"), "it has 0 players and must have 1"),
        (("######", "#@$.@#", "######"), "it has 2 players"),
        (("######", "#@$$.#", "######"), "it has 2 boxes and 1 targets within reach"),
        (("####", "#@ #", "####"), "it has 0 boxes and 0 targets"),
        (("########", "#@$.##$#", "########"), "none beyond"),
        (("#####", "#@* #", "#####"), "all its boxes are on targets already"),
        (("#" * 65, "#@$.".ljust(64) + "#", "#" * 65), "3 rows and 65 columns, 64 are the most"),
    ],
)
def test_a_wrong_level_is_named_by_its_line(tmp_path, rows, reason):
    path = tmp_path / "wrong.xsb"
    path.write_text("\n".join(["; 0", "#####", "#@$.#", "#####", "", "; 1", *rows]))
    with pytest.raises(ConfigError) as error:
        read_levels(str(path), "all")
    assert str(error.value).startswith(f"sokoban.levels_file: {path}, the level from line 7 on: ")
    assert reason in str(error.value) and str(error.value).endswith("Correct the level or remove it.")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        (("#####", "#@$.", "#####"), 3),
        (("## ##", "#@$.#", "#####"), 2),
        (("#####", "#@$.#", "## ##"), 4),
        (("######", "#@$. #", " $.# #", "#  ###", "######"), 4),
    ],
)
def test_a_gap_in_the_outer_wall_is_named_by_its_own_line(tmp_path, rows, line):
    path = tmp_path / "wrong.xsb"
    path.write_text("\n".join(["; 0", *rows]))
    with pytest.raises(ConfigError, match=rf"wrong.xsb, line {line}: the outer wall of the level from line 2 on has"):
        read_levels(str(path), "all")


@pytest.mark.parametrize("row", ["#@x.#", "-#@$.1#"])
def test_an_unknown_character_is_named_with_its_line(tmp_path, row):
    path = tmp_path / "wrong.xsb"
    path.write_text(f"#####\n{row}\n#####\n")
    with pytest.raises(ConfigError, match=r"line 2: .* which no level knows. Correct it"):
        read_levels(str(path), "all")


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "there is no level in it"), (b"; only words\n", "there is no level in it"), (b"\xff\xfe#", "as text")],
)
def test_a_file_without_levels_is_refused(tmp_path, content, reason):
    path = tmp_path / "empty.xsb"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=reason):
        read_levels(str(path), "all")


def test_a_missing_file_is_refused_with_the_names_of_those_that_there_are():
    with pytest.raises(ConfigError, match=r"there is no file none.xsb. Write the path.*mixed.xsb"):
        make_env("sokoban", {"levels_file": "none.xsb"})


def test_a_wrong_file_is_refused_with_the_options_before_an_environment_is_made():
    with pytest.raises(ConfigError, match=r"^custom_envs\.Mine\.env_config\.levels_file: there is no file none.xsb"):
        check_options("Mine", "sokoban", {"levels_file": "none.xsb"})


def test_a_file_that_changed_is_read_again(tmp_path, collection):
    assert len(read_levels(collection, "all")) == 3
    Path(collection).write_text(
        COLLECTION + "\n####\n#@$.#\n".replace("####", "#####") + "#####\n\n#####\n#.$@#\n#####\n"
    )
    assert len(read_levels(collection, "all")) == 4


# --- splits and seeds


def test_train_and_test_share_no_level_and_are_all():
    train, test = (read_levels("mixed.xsb", split) for split in ("train", "test"))
    assert (len(train), len(test)) == (120, 30)
    assert set(train) | set(test) == set(read_levels("mixed.xsb", "all")) and not set(train) & set(test)


def test_the_split_does_not_depend_on_the_order_of_the_file(tmp_path):
    levels = read_levels("mixed.xsb", "all")
    path = tmp_path / "backwards.xsb"
    path.write_text("\n\n".join(map(to_text, reversed(levels))))
    assert set(read_levels(str(path), "test")) == set(read_levels("mixed.xsb", "test"))


def test_the_test_levels_of_our_file_are_these_on_every_machine():
    test = read_levels("mixed.xsb", "test")
    assert [content_hash(level) % 10**6 for level in test[:3]] == [944969, 259340, 627658]


def test_one_level_cannot_be_split(tmp_path):
    path = tmp_path / "one.xsb"
    path.write_text("#####\n#@$.#\n#####\n")
    assert len(read_levels(str(path), "all")) == 1
    with pytest.raises(ConfigError, match="cannot be train and test"):
        read_levels(str(path), "test")


def test_a_split_needs_a_file():
    with pytest.raises(ConfigError, match="Set levels_file, or split: all"):
        SokobanConfig(split="test")


def test_seeds_walk_through_the_file_and_begin_again(collection):
    env = SokobanEnv(SokobanConfig(levels_file=collection))
    sizes = [len(env.reset(seed).split("\n")) for seed in range(5)]
    assert sizes == [3, 5, 4, 3, 5]


def test_what_a_file_holds_is_told_by_its_levels(collection, tmp_path):
    facts = SokobanEnv.data_facts(SokobanConfig(levels_file=collection))["levels_file"]
    assert facts.startswith("3 levels, hash ")
    copy = tmp_path / "copy.xsb"
    copy.write_text("; another title\n" + Path(collection).read_text())
    assert SokobanEnv.data_facts(SokobanConfig(levels_file=str(copy)))["levels_file"] == facts
    copy.write_text(Path(collection).read_text() + "\n########\n#@   $.#\n########\n")
    assert SokobanEnv.data_facts(SokobanConfig(levels_file=str(copy)))["levels_file"] != facts
    assert data_facts("A", "sokoban", None) == {} == data_facts("B", "bandit", None)


def test_levels_of_all_sizes_are_played_to_the_end(collection):
    check_env(
        partial(make_env, "sokoban", {"levels_file": collection, "observation_format": "grid_coord"}), seeds=range(3)
    )


def test_the_board_and_its_picture_follow_the_level(collection):
    env = SokobanEnv(SokobanConfig(levels_file=collection, observation_format="grid_coord"))
    env.reset(1)
    assert env.render().startswith("Board: 5 rows, 8 columns\n") and "5 rows and 8 columns" in env.notes()
    assert env.render_rgb().shape == (5 * 16, 8 * 16, 3)
    env.step(UP)
    assert env.render().endswith("########\n#####__#\n#O__XP_#\n#______#\n########")


# --- the solver's limit


def test_every_level_of_our_file_is_solved_in_a_few_moves():
    for level in read_levels("mixed.xsb", "all"):
        assert 3 <= len(search(level).actions) <= 12


def test_a_search_that_gives_up_says_so_once_and_claims_nothing(collection, caplog):
    sokoban_env.report_limit.cache_clear()
    env = SokobanEnv(SokobanConfig(levels_file=collection, solver_states=1))
    env.reset(1)
    with caplog.at_level(logging.WARNING):
        assert env.solve() is None and env.solve() is None
    assert env.hint() == "No solution found in 1 states."
    assert [record.getMessage().count("gave up a level after 1 states") for record in caplog.records] == [1]


def test_a_lost_level_is_no_search_that_gave_up():
    found = search(room("#####", "#X__#", "#_PO#", "#####"))
    assert (found.actions, found.is_cut) == (None, False)


def test_the_file_is_what_the_tool_writes(capsys):
    from tools.sokoban_levels import main

    main()
    assert capsys.readouterr().out == (OWN_LEVELS / "mixed.xsb").read_text()
