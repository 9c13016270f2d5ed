"""`ragen show`: episodes as text and as pictures."""

import struct
from pathlib import Path

from ragen.cli import main
from ragen.evaluation.show import to_text
from ragen.types import Episode, Status, Turn
from tests.test_text import ESCAPES


def test_show_prints_boards_and_writes_pictures(sokoban_run, tmp_path, capsys):
    args = ["show", str(sokoban_run), "--policy", "solver", "--limit", "1", "--png", str(tmp_path / "png")]
    assert main(args) == 0
    text = capsys.readouterr().out
    assert "######" in text
    assert "solved" in text
    pictures = sorted((tmp_path / "png").iterdir())
    assert len(pictures) >= 2
    for picture in map(Path.read_bytes, pictures):
        assert picture.startswith(b"\x89PNG")
        # Width and height of the header: 6 cells of 16 pixels, five times as large.
        assert struct.unpack(">II", picture[16:24]) == (480, 480)


def test_show_filters_by_status(sokoban_run, capsys):
    assert main(["show", str(sokoban_run), "--policy", "solver", "--status", Status.FAILED.value]) == 0
    assert "No episode matches" in capsys.readouterr().out


def test_an_episode_is_shown_without_its_escapes():
    turn = Turn(
        user=ESCAPES, observation=ESCAPES, prompt_ids=[], response_ids=[], logprobs=[], text=ESCAPES, stop_reason="x"
    )
    episode = Episode(tag="Lake", env_type="lake", group_id=0, member=0, seed=1, system=ESCAPES, turns=[turn])
    episode.status, episode.error, episode.final_observation = Status.ENV_ERROR, ESCAPES, ESCAPES
    shown = to_text(episode, "train_step_1")
    assert all(char.isprintable() or char == "\n" for char in shown)
    assert shown.count(r"\x1b[2J") == 5
