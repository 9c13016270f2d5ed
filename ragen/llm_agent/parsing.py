"""From a reply to action names. Linear in the length of the reply, whatever it holds."""

from __future__ import annotations

import re
from dataclasses import dataclass

THINK = ("<think>", "</think>")
ANSWER = ("<answer>", "</answer>")
MAX_PASSES = 4
"""Passes that remove markers before the way that takes a fixed time per character."""


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """What a reply said."""

    is_parsed: bool
    """The required blocks were found."""
    thought: str
    actions: list[str]
    """Trimmed, non-empty, at most max_actions."""
    num_cut: int
    """Actions beyond max_actions."""


def parse_reply(
    text: str, *, enable_think: bool, action_sep: str, max_actions: int, special_strings: tuple[str, ...] = ()
) -> ParsedReply:
    """The thought and the actions of a reply.

    "<think>go</think><answer>Up || Left</answer>" -> thought "go", actions ["Up", "Left"]

    With thinking on, the first think block that is directly followed by an answer block counts; text around them
    is ignored. Tags and chat markers inside the blocks are removed.
    """
    blocks = _think_and_answer(text) if enable_think else _answer_only(text)
    if blocks is None:
        return ParsedReply(False, "", [], 0)
    markers = (*THINK, *ANSWER, *special_strings)
    thought, answer = (_without(part, markers).strip() for part in blocks)
    names = [name for piece in answer.split(action_sep) if (name := piece.strip())]
    return ParsedReply(True, thought, names[:max_actions], max(0, len(names) - max_actions))


def _think_and_answer(text: str) -> tuple[str, str] | None:
    start = text.find(THINK[0])
    if start < 0:
        return None
    start += len(THINK[0])
    search_from = start
    while (end := text.find(THINK[1], search_from)) >= 0:
        answer_from = _skip_space(text, end + len(THINK[1]))
        if text.startswith(ANSWER[0], answer_from):
            answer_from += len(ANSWER[0])
            answer_end = text.find(ANSWER[1], answer_from)
            return None if answer_end < 0 else (text[start:end], text[answer_from:answer_end])
        search_from = max(end + len(THINK[1]), answer_from)
    return None


def _answer_only(text: str) -> tuple[str, str] | None:
    start = text.find(ANSWER[0])
    if start < 0:
        return None
    start += len(ANSWER[0])
    end = text.find(ANSWER[1], start)
    return None if end < 0 else ("", text[start:end])


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
