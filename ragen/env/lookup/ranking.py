"""Search by words: passages that share the rarest words with a query come first.

Scores are whole numbers, so that every machine ranks alike. Tested in tests/env/test_lookup_env.py.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

WORD = re.compile(r"[a-z0-9]+")
COMMON = frozenset({
    "a", "an", "and", "by", "does", "for", "has", "in", "is", "its", "of", "the", "to", "was", "what", "which", "who",
})  # fmt: skip
"""Words that say nothing about a passage."""
TITLE_WEIGHT = 3
"""A word of the title counts so often."""
SCALE = 1_000
MAX_WORDS = 64
"""Different words of a query; more are not looked at."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of the corpus."""

    title: str
    text: str


class Index:
    """The words of a corpus."""

    def __init__(self, passages: Iterable[tuple[str, str]]) -> None:
        self.passages = [Passage(title, text) for title, text in passages]
        self.words = [set(words(f"{each.title} {each.text}")) for each in self.passages]
        self.titles = [set(words(each.title)) for each in self.passages]
        self.counts = Counter(word for found in self.words for word in found)

    def search(self, query: str, limit: int) -> list[Passage]:
        """The best passages, best first; those that share no word with the query are left out."""
        wanted = list(dict.fromkeys(words(query)))[:MAX_WORDS]
        scored = []
        for number, (found, title) in enumerate(zip(self.words, self.titles, strict=True)):
            # A word that few passages have says more about them.
            weights = {word: SCALE * len(self.passages) // self.counts[word] for word in wanted if word in found}
            score = sum(weight * (TITLE_WEIGHT if word in title else 1) for word, weight in weights.items())
            if score:
                scored.append((-score, number))
        return [self.passages[number] for _, number in sorted(scored)[:limit]]


def words(text: str) -> list[str]:
    """ "Who is the mayor of Dunford?" -> ["mayor", "dunford"]"""
    return [word for word in WORD.findall(text.lower()) if word not in COMMON]
