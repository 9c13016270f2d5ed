"""OpenEnv's messages: what is one, and what is refused."""

import json

import pytest

from ragen.env.openenv.protocol import MAX_DEPTH, MAX_MESSAGE, NotAMessage, depth, read, write, write_error


def test_a_message_is_read_as_it_was_written():
    assert read(write("step", {"text": "Ärger \U0001f600"})) == ("step", {"text": "Ärger \U0001f600"})
    assert read('{"type": "state"}') == ("state", {})


def test_half_characters_are_replaced():
    assert read(write("step", {"text": "a\ud800b"})) == ("step", {"text": "a?b"})


def test_numbers_that_are_no_json_are_not_written():
    with pytest.raises(ValueError):
        write("observation", {"reward": float("nan")})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "no type"),
        ('{"type": 3}', "no type"),
        ('{"type": "step", "data": []}', "not an object"),
        (json.dumps({"type": "step", "data": {"a": json.loads("[" * 40 + "]" * 40)}}), f"more than {MAX_DEPTH} levels"),
        ("x" * (MAX_MESSAGE + 1), "characters"),
    ],
)
def test_what_is_no_message_says_why(text: str, reason: str):
    with pytest.raises(NotAMessage, match=reason):
        read(text)


def test_depth_counts_containers():
    assert [depth(value) for value in (1, {}, {"a": 1}, {"a": [1]}, [[[]]])] == [0, 0, 1, 2, 2]


def test_an_error_is_printable_and_short():
    kind, data = read(write_error("\x1b[2J" + "x" * 9000, "EXECUTION_ERROR"))
    assert kind == "error" and data["code"] == "EXECUTION_ERROR"
    assert "\x1b" not in data["message"] and len(data["message"]) <= 2000
