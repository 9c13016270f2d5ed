"""An invented world of people, companies, cities and provinces: facts, a passage on each thing, and questions.

Everything follows from a seed, the same on every machine. A question names one thing and asks for another that lies two
or three facts away: "What is the river of the city in which the teacher of Ada Bexley lives?".

Tested in tests/env/test_lookup_env.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ragen.errors import ConfigError
from ragen.seeding import Rng

MAX_DRAWS = 10_000
"""Draws of a question until its way leads past no thing twice."""
FIRST_NAMES = (
    "Ada", "Bruno", "Clara", "Dario", "Edith", "Felix", "Greta", "Hugo", "Irene", "Jonas", "Karla", "Leon", "Mina",
    "Nils", "Olga", "Pavel", "Rosa", "Simon", "Tilda", "Uwe", "Vera", "Walter", "Xenia", "Yara",
)  # fmt: skip
LAST_NAMES = (
    "Abbot", "Bexley", "Corwin", "Dalton", "Ember", "Farlow", "Gorman", "Harker", "Ivory", "Jarvis", "Kessel", "Lorne",
    "Marlow", "Norwood", "Oakes", "Penrose", "Quill", "Rowan", "Selby", "Thorne", "Upton", "Varga", "Wren", "Yardley",
)  # fmt: skip
STARTS = ("Bel", "Cor", "Dun", "El", "Far", "Gal", "Hol", "Is", "Kar", "Lin", "Mor", "Nor", "Or", "Per", "Ros", "Tal")
CITY_ENDS = ("burg", "dale", "ford", "haven", "mere", "port", "stead", "wick")
RIVER_ENDS = ("a", "en", "is", "une")
PROVINCE_ENDS = ("land", "mark", "shire")
COMPANY_WORDS = ("Amber", "Basalt", "Cedar", "Delta", "Ebony", "Falcon", "Granite", "Harbor", "Indigo", "Jasper")
TRADES = ("Bakeries", "Bridges", "Clocks", "Engines", "Glass", "Instruments", "Paper", "Pumps", "Ships", "Textiles")


@dataclass(frozen=True, slots=True)
class Relation:
    """What one kind of thing has to do with another."""

    name: str
    kind: str
    """Of the thing that has it."""
    value_kind: str
    sentence: str
    """How a passage states it."""
    phrase: str
    """How a question refers to it."""


RELATIONS = (
    Relation("employer", "person", "company", "{subject} works for {value}.", "the employer of {subject}"),
    Relation("home", "person", "city", "{subject} lives in {value}.", "the city in which {subject} lives"),
    Relation("teacher", "person", "person", "{subject} was taught by {value}.", "the teacher of {subject}"),
    Relation("seat", "company", "city", "{subject} has its seat in {value}.", "the city that is the seat of {subject}"),
    Relation("founder", "company", "person", "{subject} was founded by {value}.", "the founder of {subject}"),
    Relation("mayor", "city", "person", "The mayor of {subject} is {value}.", "the mayor of {subject}"),
    Relation("river", "city", "river", "The river {value} flows through {subject}.", "the river of {subject}"),
    Relation("province", "city", "province", "{subject} lies in the province of {value}.", "the province of {subject}"),
)  # fmt: skip
BY_KIND = {kind: [each for each in RELATIONS if each.kind == kind] for kind in ("person", "company", "city")}


@dataclass(frozen=True, slots=True)
class Hop:
    """One fact on the way: what is looked up, and what is found."""

    subject: str
    relation: Relation
    value: str


@dataclass(frozen=True, slots=True)
class Question:
    """A question, the facts that lead to its answer, in order, and the answer."""

    text: str
    hops: tuple[Hop, ...]

    @property
    def answer(self) -> str:
        return self.hops[-1].value


class World:
    """The things of a world, by kind, and the facts about them."""

    def __init__(self, seed: int, *, num_people: int, num_cities: int) -> None:
        rng = Rng(seed, "world")
        self.names = {
            "person": draw_names(rng, FIRST_NAMES, LAST_NAMES, num_people, between=" "),
            "company": draw_names(rng, COMPANY_WORDS, TRADES, num_cities, between=" "),
            "city": draw_names(rng, STARTS, CITY_ENDS, num_cities),
            "river": draw_names(rng, STARTS, RIVER_ENDS, num_cities),
            "province": draw_names(rng, STARTS, PROVINCE_ENDS, num_cities // 3 + 1),
        }
        self.facts: dict[tuple[str, str], str] = {}
        for relation in RELATIONS:
            for subject in self.names[relation.kind]:
                self.facts[subject, relation.name] = self._draw_value(rng, relation, subject)

    def _draw_value(self, rng: Rng, relation: Relation, subject: str) -> str:
        """Any thing of the kind but the subject; a city has a river of its own."""
        if relation.value_kind == "river":
            return self.names["river"][self.names["city"].index(subject)]
        return rng.choice([name for name in self.names[relation.value_kind] if name != subject])

    def passages(self) -> Iterator[tuple[str, str]]:
        """Title and text of a passage on each person, company and city."""
        for kind, relations in BY_KIND.items():
            for subject in self.names[kind]:
                values = ((relation, self.facts[subject, relation.name]) for relation in relations)
                yield subject, " ".join(each.sentence.format(subject=subject, value=value) for each, value in values)

    def question(self, rng: Rng, num_hops: int) -> Question:
        """A question whose way has so many facts and leads past no thing twice."""
        for _ in range(MAX_DRAWS):
            start = rng.choice(self.names["person"])
            hops = self._draw_way(rng, start, num_hops)
            if hops and len({start, *(hop.value for hop in hops)}) == num_hops + 1:
                return Question(_ask(start, hops), tuple(hops))
        raise ConfigError(f"lookup: this world has no question of {num_hops} facts. Raise num_people or num_cities.")

    def _draw_way(self, rng: Rng, subject: str, num_hops: int) -> list[Hop]:
        kind, hops = "person", []
        for _ in range(num_hops):
            if kind not in BY_KIND:
                return []  # nothing more is known of rivers and provinces
            relation = rng.choice(BY_KIND[kind])
            value = self.facts[subject, relation.name]
            hops.append(Hop(subject, relation, value))
            subject, kind = value, relation.value_kind
        return hops


def draw_names(rng: Rng, starts: Sequence[str], ends: Sequence[str], count: int, *, between: str = "") -> list[str]:
    names = [start + between + end for start in starts for end in ends]
    rng.shuffle(names)
    return names[:count]


def _ask(start: str, hops: list[Hop]) -> str:
    """The facts, one within the other: "What is the mayor of the city in which Ada Bexley lives?"."""
    phrase = start
    for hop in hops:
        phrase = hop.relation.phrase.format(subject=phrase)
    return f"{'Who' if hops[-1].relation.value_kind == 'person' else 'What'} is {phrase}?"
