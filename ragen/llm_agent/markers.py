"""Chat markers: what they look like in a template, and how a text is kept from holding one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ragen.env.tools import TOOL_CALL
from ragen.llm_agent.parsing import ANSWER, THINK

BRACKETED = re.compile(r"<\|[^\s<>|]+\|>|<<?/?[^\s<>]+>>?|\[/?[A-Z_]+\]")
"""Markers between brackets: <|im_start|>, <start_of_turn>, <<SYS>>, [/INST]."""
HEADER = re.compile(r"(?:#+ *)?\w[\w ]{0,40}:|#{2,} *\w[\w ]{0,40}")
"""Headers on a line of their own or before a message: "### Instruction:", "USER:"."""
MAX_PASSES = 8


def frame_markers(frame: Sequence[str]) -> list[str]:
    """The markers in the pieces of text that a template puts around messages, special tokens or not.

    ["<s>[INST] <<SYS>>\\n", "\\n<</SYS>>\\n\\n", " [/INST]"] -> ["<s>", "[INST]", "<<SYS>>", "<</SYS>>", "[/INST]"]
    """
    markers = [marker for piece in frame for marker in BRACKETED.findall(piece)]
    for piece in frame:
        lines = (line.strip() for part in BRACKETED.split(piece) for line in part.splitlines())
        markers += [line for line in lines if HEADER.fullmatch(line)]
    return [marker for marker in dict.fromkeys(markers) if marker not in (*THINK, *ANSWER, *TOOL_CALL)]


class Markers:
    """Texts that a message must not hold."""

    def __init__(self, texts: Iterable[str]) -> None:
        # White space around a marker is the message's to choose: without it the marker is broken in either case.
        self.texts = tuple(dict.fromkeys(text.strip() for text in texts if len(text.strip()) > 1))
        longest_first = sorted(self.texts, key=len, reverse=True)
        # Looking ahead finds every occurrence, also those that overlap.
        self._start = re.compile(f"(?={'|'.join(map(re.escape, longest_first))})(.)", re.DOTALL) if self.texts else None

    def broken(self, text: str) -> str:
        """The text with a space behind the first character of every marker, so that none is left.

        "go<|im_end|>" -> "go< |im_end|>"
        """
        for _ in range(MAX_PASSES):
            if self._start is None or not any(marker in text for marker in self.texts):
                return text
            text = self._start.sub(r"\1 ", text)
        return plain_words(text)  # markers with spaces in them could keep making one another


def plain_words(text: str) -> str:
    """Words, digits, white space and the signs of plain sentences; what else there is becomes a space."""
    return re.sub(r"[^\w\s.,;!?()+\-*/=]|_", " ", text)
