"""`ragen chat`: a conversation that grows as in a rollout, and text that has no power over a terminal."""

import io
import os
import pty
import shutil
import subprocess
import sys

import pytest

from ragen.cli import main
from ragen.engine.base import StopReason
from ragen.errors import EngineError
from ragen.evaluation.talk import ChatOptions, Conversation, messages, open_conversation, talk
from ragen.models.resolve import TINY_ROOT

MODEL = "tiny/frozen_lake"


def options(**changes) -> ChatOptions:
    fields = {"system": "be brief", "max_tokens": 12, "max_model_len": 400, "temperature": 1.0, "top_p": 1.0, "seed": 3}
    return ChatOptions(**{"model": MODEL, **fields, **changes})


@pytest.fixture(scope="module")
def conversation() -> Conversation:
    return open_conversation(options())[0]


@pytest.fixture(autouse=True)
def forgotten(conversation):
    yield
    conversation.reset()


def say(conversation: Conversation, text: str) -> str:
    pieces: list[str] = []
    conversation.say(text, pieces.append)
    return "".join(pieces)


def test_the_conversation_grows_by_what_was_sampled_and_the_next_message(conversation):
    first = say(conversation, "go Up")
    start = conversation.chat.start("be brief", "go Up")
    before = list(conversation.ids)
    assert before == start + conversation.reply_ids
    assert first == conversation.chat.reply_text(conversation.reply_ids)
    reply = conversation.reply_ids
    say(conversation, "go Down")
    assert conversation.ids[: len(before)] == before
    assert conversation.ids == before + conversation.chat.append(reply, "go Down") + conversation.reply_ids


def test_the_same_messages_have_the_same_replies_and_another_seed_has_others(conversation):
    texts = ["go Up", "go Down", "go Left"]
    replies = [say(conversation, text) for text in texts]
    conversation.reset()
    assert [say(conversation, text) for text in texts] == replies
    other = Conversation(conversation.engine, conversation.chat, options(seed=4), max_model_len=400)
    other.reset()
    assert [say(other, text) for text in texts] != replies


def test_a_reply_comes_in_pieces(conversation):
    pieces: list[str] = []
    reason = conversation.say("go Up", pieces.append)
    assert len([piece for piece in pieces if piece]) > 1
    assert reason in (StopReason.LENGTH, StopReason.STOP_TOKEN)


def test_a_full_context_is_said_and_the_conversation_stays(conversation):
    say(conversation, "go Up")
    before = list(conversation.ids)
    with pytest.raises(EngineError, match=r"context is full: \d+ tokens with this message, 400 fit\. /reset"):
        say(conversation, "a long story " * 300)
    assert conversation.ids == before
    say(conversation, "go Down")


def test_lines_are_messages_and_slashes_are_commands():
    out, notes = io.StringIO(), io.StringIO()
    lines = io.StringIO("go Up\n\n/reset\ngo Up\n/jump \x1b[2J\n /not a command\n/quit\nnever read\n")
    assert talk(options(temperature=0.0), lines, out, notes) == 0
    assert lines.read() == "never read\n"
    replies = out.getvalue().splitlines()
    assert replies[0] == replies[1]  # greedy, and the first was forgotten
    assert "The conversation is forgotten." in notes.getvalue()
    assert "Unknown command /jump." in notes.getvalue()
    assert len(replies) == 3


def test_what_a_model_writes_has_no_power_over_the_terminal(conversation, monkeypatch):
    monkeypatch.setattr("ragen.evaluation.talk.open_conversation", lambda options: (conversation, ["\x1b[2Jname"]))
    monkeypatch.setattr(conversation.chat, "reply_text", lambda ids: "\x1b]0;title\x07 hi")
    out, notes = io.StringIO(), io.StringIO()
    talk(options(), io.StringIO("go Up\n"), out, notes)
    assert out.getvalue() == "\\x1b]0;title\\x07 hi\n"
    assert "\x1b" not in notes.getvalue()


def test_a_run_stands_for_its_newest_actor(tmp_path):
    for step in (4, 12):
        actor = shutil.copytree(TINY_ROOT / "bandit", tmp_path / f"global_step_{step}" / "actor")
    _, notes = open_conversation(options(model=str(tmp_path)))
    assert notes[0] == f"Model: {actor}"


def test_a_wrong_model_and_a_wrong_number_are_one_line(capsys):
    assert main(["chat", "./nowhere"]) == 1
    assert capsys.readouterr().err.startswith("error: The model directory nowhere does not exist.")
    with pytest.raises(SystemExit):
        main(["chat", MODEL, "--temperature", "nan"])
    assert "nan is no number from 0 to 100" in capsys.readouterr().err


def test_blank_lines_are_left_out():
    assert list(messages(io.StringIO("a\n\n  \n /b\nc"), io.StringIO(), is_terminal=False)) == ["a", " /b", "c"]


@pytest.mark.slow
def test_a_terminal_is_asked_and_control_d_ends():
    leader, follower = pty.openpty()
    words = [sys.executable, "-m", "ragen.cli", "chat", MODEL, "--max-tokens", "5"]
    with subprocess.Popen(words, stdin=follower, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        os.write(leader, b"go Up\n\x04")
        out, notes = child.communicate(timeout=120)
    assert child.returncode == 0
    assert out.endswith("\n") and out.strip()
    assert "/quit ends it" in notes and notes.count("> ") == 2
