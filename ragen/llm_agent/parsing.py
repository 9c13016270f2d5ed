"""From a reply to action names, to the text of its answer, or to its call of a tool.

Linear in the length of the reply, whatever it holds.
"""

from __future__ import annotations

import re
import string
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ragen.env.tools import TOOL_CALL

THINK = ("<think>", "</think>")
ANSWER = ("<answer>", "</answer>")
MAX_PASSES = 4
"""Passes that remove markers before the way that takes a fixed time per character."""
LENIENT_SEPARATORS = ("\n", ";", ",")
DECORATION = string.whitespace + "\u00a0.*\"'`\u201c\u201d\u2018\u2019"
"""What lenient parsing takes off both ends of an action: white space, periods, asterisks, quotes, backticks."""
BULLET = re.compile(r"\d{1,3}[.)]|[-\u2013\u2022]")
"""1. or 1) or a dash, before an action."""
LABEL = re.compile(r"actions?[ \d]{0,8}:", re.IGNORECASE)
"""Action: or Actions: or Action 1:, before an action."""


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """What a reply said."""

    is_parsed: bool
    """The required blocks were found."""
    thought: str
    actions: list[str]
    """Trimmed, non-empty, at most max_actions; of free text the answer as it is, unless it is blank, or the call of a
    tool with its tags."""
    num_cut: int
    """Actions beyond max_actions."""
    is_lenient_valid: bool = False
    """Read leniently, all actions (and at least one) are known; of free text, there is one."""


def parse_reply(
    text: str,
    *,
    enable_think: bool,
    action_sep: str,
    max_actions: int,
    special_strings: tuple[str, ...] = (),
    known: Collection[str] = (),
    is_lenient: bool = False,
    is_free_text: bool = False,
    has_tools: bool = False,
) -> ParsedReply:
    """The thought and the actions of a reply.

    "<think>go</think><answer>Up || Left</answer>" -> thought "go", actions ["Up", "Left"]

    With thinking on, the first think block that is directly followed by an answer block counts; text around them
    is ignored. Tags and chat markers inside the blocks are removed.

    `known` holds the names of the actions in lower case. With `is_lenient` an answer that names unknown actions is read
    a second time, see `lenient_names`. The first reading in which all actions are known counts; where there is none,
    the first with a known action. With `is_free_text` nothing is split: the answer block is the one action. With
    `has_tools` a tool_call block may stand for the answer block; it is the one action, tags and all.
    """
    if enable_think:
        thought, answer = _think_and_answer(text, (ANSWER, TOOL_CALL) if has_tools else (ANSWER,))
    else:
        thought, answer = "", _called(text) if has_tools else None
        answer = answer or _block(text, text.find(ANSWER[0]), ANSWER)
    if answer is None:
        return ParsedReply(False, "", [], 0)
    markers = (*THINK, *ANSWER, *special_strings)
    thought = _without(thought, markers).strip()
    if has_tools and answer.lstrip().startswith(TOOL_CALL[0]):
        return ParsedReply(True, thought, [answer], 0, True)
    answer = _without(answer, markers)
    if is_free_text:
        texts = [answer] if answer.strip() else []
        return ParsedReply(True, thought, texts, 0, bool(texts))
    answer = answer.strip()
    readings = [[name for piece in answer.split(action_sep) if (name := piece.strip())]]

    def num_unknown(names: Sequence[str]) -> int:
        return sum(name.lower() not in known for name in names[:max_actions])

    if known and (num_unknown(readings[0]) or not readings[0]):
        readings.append(lenient_names(answer, action_sep=action_sep, known=known))
    valid = [names for names in readings if names and not num_unknown(names)]
    usable = [names for names in readings if num_unknown(names) < len(names[:max_actions])]
    names = [*valid, *usable, readings[0]][0] if is_lenient else readings[0]
    return ParsedReply(True, thought, names[:max_actions], max(0, len(names) - max_actions), bool(valid))


def lenient_names(answer: str, *, action_sep: str, known: Collection[str]) -> list[str]:
    """The actions of an answer that does not keep to the separator.

    "1. **Up**, `down`." -> ["Up", "down"]

    Separators are action_sep, ends of lines, semicolons and commas. A piece that is a known name is not split further,
    so that names may hold a separator, a number or a quote.
    """

    def read(piece: str, separators: Sequence[str]) -> list[str]:
        name = _undecorated(piece, known)
        if name.lower() in known or not separators:
            return [name] if name else []
        return [name for part in piece.split(separators[0]) for name in read(part, separators[1:])]

    return read(answer, (action_sep, *LENIENT_SEPARATORS))


def _undecorated(piece: str, known: Collection[str]) -> str:
    """An action without what lenient parsing ignores; nothing more is taken away once it is known."""
    name = piece.strip()
    for prefix in (None, BULLET, LABEL):
        if name.lower() in known:
            return name
        found = prefix.match(name) if prefix else None
        name = name[found.end() if found else 0 :].strip(DECORATION)
    return name


Tags = tuple[str, str]


def _think_and_answer(text: str, blocks: Sequence[Tags]) -> tuple[str, str | None]:
    """The thought and what is in the block directly behind it, or None; a call of a tool keeps its tags."""
    start = text.find(THINK[0])
    if start < 0:
        return "", None
    start += len(THINK[0])
    search_from = start
    while (end := text.find(THINK[1], search_from)) >= 0:
        answer_from = _skip_space(text, end + len(THINK[1]))
        for tags in blocks:
            if text.startswith(tags[0], answer_from):
                return text[start:end], _block(text, answer_from, tags)
        search_from = max(end + len(THINK[1]), answer_from)
    return "", None


def _called(text: str) -> str | None:
    """The call of a tool that a reply without a thought begins with, also behind the forced <answer>."""
    start = _skip_space(text, 0)
    if text.startswith(ANSWER[0], start):
        start = _skip_space(text, start + len(ANSWER[0]))
    return _block(text, start, TOOL_CALL)


def _block(text: str, start: int, tags: Tags) -> str | None:
    """What is in the block that starts here, with the tags of a call of a tool; None where none does, or has no end."""
    inside = start + len(tags[0])
    end = text.find(tags[1], inside)
    if end < 0 or not text.startswith(tags[0], start):
        return None
    return text[start : end + len(tags[1])] if tags == TOOL_CALL else text[inside:end]


def _skip_space(text: str, index: int) -> int:
    while index < len(text) and text[index].isspace():
        index += 1
    return index


def _without(text: str, markers: tuple[str, ...]) -> str:
    """The text with all markers removed, also those that come about by a removal: "<thi<think>nk>" -> ""."""
    if not any(marker in text for marker in markers):
        return text
    pattern = re.compile("|".join(map(re.escape, sorted(markers, key=len, reverse=True))))
    for _ in range(MAX_PASSES):
        text, num_removed = pattern.subn("", text)
        if not num_removed:
            return text
    # Nested without end: one pass with a stack, in which a marker goes the moment it is complete.
    by_end: dict[str, list[str]] = {}
    for marker in markers:
        by_end.setdefault(marker[-1], []).append(marker)
    kept: list[str] = []
    for char in text:
        kept.append(char)
        for marker in by_end.get(char, ()):
            if kept[-len(marker) :] == list(marker):
                del kept[-len(marker) :]
                break
    return "".join(kept)
