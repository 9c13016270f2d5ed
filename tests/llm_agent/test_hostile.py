"""Hostile replies by the thousand, and by the million: nothing raises, nothing is forged, only known actions are done.

The same replies every time: HOSTILE_SEED and HOSTILE_COUNT choose others.
    HOSTILE_COUNT=1000000 python -m pytest -m slow tests/llm_agent/test_hostile.py
"""

from __future__ import annotations

import itertools
import os
import random
import re
from collections.abc import Iterator

import pytest

from ragen.engine.scripted import ScriptedEngine
from ragen.llm_agent.parsing import ANSWER, THINK, parse_reply
from ragen.types import Status
from tests.llm_agent.counting import make_agent, make_seats, make_tag, rollout, script
from tests.llm_agent.templates import FAMILIES
from tests.llm_agent.test_chat import PIECES, hostile_chat

SEED = int(os.environ.get("HOSTILE_SEED", "0"))
MANY = int(os.environ.get("HOSTILE_COUNT", "1000000"))
WORDS = [
    *PIECES,
    *THINK,
    *ANSWER,
    "||",
    "Up",
    "Down",
    "up",
    "\0",
    "\ud800",
    "\x1b[2J",
    "é√中",
    "Jump",
    "<thi",
    "nk>",
    "</",
    "\t",
]
CHATS = [*FAMILIES, "alpaca", "vicuna"]


def hostile_reply(rng: random.Random) -> str:
    """A well-formed reply, pieces of one, markers inside markers, or noise."""
    kind = rng.random()
    junk = "".join(rng.choices(WORDS, k=rng.randrange(12)))
    if kind < 0.3:
        return (
            f"<think>{junk}</think>{rng.choice(['', ' ', junk])}<answer>{' || '.join(rng.choices(WORDS, k=3))}</answer>"
        )
    if kind < 0.5:
        marker, depth = rng.choice(WORDS), rng.randrange(8)
        cut = rng.randrange(len(marker)) if marker else 0
        nested = marker[:cut] * depth + marker + marker[cut:] * depth
        return f"<think>{nested}</think><answer>U{nested}p || {junk}</answer>"
    if kind < 0.6:
        return rng.choice(WORDS) * rng.randrange(200)
    if kind < 0.8:
        return junk
    return "".join(chr(rng.choice([rng.randrange(0x80), rng.randrange(0x11_0000)])) for _ in range(rng.randrange(40)))


def hostile_replies(count: int) -> Iterator[tuple[int, str]]:
    rng = random.Random(SEED)
    for number in range(count):
        yield number, hostile_reply(rng)


def check_parsing(text: str, special_strings: tuple[str, ...]) -> None:
    for enable_think, is_lenient in itertools.product((True, False), repeat=2):
        reply = parse_reply(
            text,
            enable_think=enable_think,
            action_sep="||",
            max_actions=2,
            special_strings=special_strings,
            known={"up", "down"},
            is_lenient=is_lenient,
        )
        assert len(reply.actions) <= 2 and reply.num_cut >= 0
        assert reply.is_parsed or not (reply.thought or reply.actions)
        for part in (reply.thought, *reply.actions):
            assert not any(marker in part for marker in (*THINK, *ANSWER, *special_strings))
        assert all(action and action == action.strip() and "||" not in action for action in reply.actions)


def check_replies(count: int) -> None:
    chats = [hostile_chat(name) for name in CHATS]
    headers = [re.compile("|".join(map(re.escape, chat.special_strings))) for chat in chats]

    def found(index: int, text: str) -> tuple[int, int]:
        """Markers in the ids and in the text of a prompt that shows this observation."""
        ids = chats[index].append([5], text)
        return chats[index]._count_markers(ids), len(headers[index].findall(chats[index].decode(ids)))

    expected = [found(index, "more") for index in range(len(chats))]
    for number, text in hostile_replies(count):
        index = number % len(chats)
        check_parsing(text, chats[index].special_strings)
        assert found(index, text) == expected[index], (CHATS[index], text)


def test_thousands_of_hostile_replies_are_parsed_and_shown():
    check_replies(6000)


@pytest.mark.slow
@pytest.mark.timeout(7200)  # about a millisecond each
def test_a_million_hostile_replies_are_parsed_and_shown():
    check_replies(MANY)


def test_hostile_replies_do_nothing_but_known_actions():
    for _, text in hostile_replies(300):
        seats = make_seats(make_tag(goal=99, step_timeout=None))
        [episode] = rollout(ScriptedEngine(script(text)), seats=seats, agent=make_agent(max_turn=2))
        assert episode.status in (Status.OUT_OF_TURNS, Status.FAILED)
        for turn in episode.turns:
            assert {name.lower() for name in turn.executed} <= {"up", "down", "break"}
