"""A question that takes two or three facts, each of which must be looked up with a search tool."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

from ragen.config.bounds import Count, CountOrZero, number
from ragen.env.base import StartedEnv
from ragen.env.lookup.ranking import Index
from ragen.env.lookup.world import World
from ragen.env.tool_env import ToolEnv
from ragen.env.tools import Tool, ToolCall, one_text
from ragen.errors import ConfigError
from ragen.seeding import Rng

SEARCH = Tool(
    name="search",
    description="The passages of an encyclopedia that fit a query best.",
    parameters=one_text("query", description="A name, or some words.", maxLength=200),
)
NOTHING = "No passage has any of these words."


@dataclass(frozen=True, kw_only=True, slots=True)
class LookupConfig:
    """The options of the look-up environment."""

    min_hops: Annotated[int, "Fewest facts of a question.", number(lambda x: 1 <= x <= 4, "from 1 to 4")] = 2
    max_hops: Annotated[int, "Most facts of a question.", number(lambda x: 1 <= x <= 4, "from 1 to 4")] = 3
    num_people: Annotated[int, "People of the world.", number(lambda x: 8 <= x <= 500, "from 8 to 500")] = 60
    num_cities: Annotated[int, "Cities, and companies.", number(lambda x: 6 <= x <= 60, "from 6 to 60")] = 18
    world_seed: Annotated[CountOrZero, "The world that all questions are about."] = 0
    is_fresh: Annotated[bool, "Each level has a world of its own, so that no fact can be learned by heart."] = False
    num_passages: Annotated[int, "Passages of a search.", number(lambda x: 1 <= x <= 10, "from 1 to 10")] = 2
    max_steps: Annotated[Count, "Calls and answers of an episode."] = 6

    def __post_init__(self) -> None:
        if self.min_hops > self.max_hops:
            raise ConfigError(f"lookup: min_hops {self.min_hops} exceeds max_hops {self.max_hops}. Exchange them.")


@lru_cache(maxsize=64)
def load_world(seed: int, *, num_people: int, num_cities: int) -> tuple[World, Index]:
    """A world and its index; nobody changes them."""
    world = World(seed, num_people=num_people, num_cities=num_cities)
    return world, Index(world.passages())


class LookupEnv(StartedEnv, ToolEnv):
    """The answer is one name; the right one gives 1, everything else 0."""

    config_class = LookupConfig
    max_tokens = 120

    def reset(self, seed: int, member: int = 0) -> str:
        cfg, rng = self.config, Rng(seed, "lookup")
        world_seed = 1 + seed if cfg.is_fresh else cfg.world_seed
        self.world, self.index = load_world(world_seed, num_people=cfg.num_people, num_cities=cfg.num_cities)
        self.question = self.world.question(rng, cfg.min_hops + rng.below(cfg.max_hops - cfg.min_hops + 1))
        return self.begin(self.question.text)

    def tools(self) -> list[Tool]:
        return [SEARCH]

    def use(self, name: str, arguments: dict[str, Any]) -> str:
        found = self.index.search(arguments["query"], self.config.num_passages)
        return "\n".join(f"{each.title}: {each.text}" for each in found) or NOTHING

    def is_right(self, answer: str) -> bool:
        return " ".join(answer.lower().split()) == self.question.answer.lower()

    def notes(self) -> str:
        return "The answer is one name. Look up one fact after the other."

    def example_answer(self) -> str:
        """A thing of the right kind that is not the answer."""
        names = self.world.names[self.question.hops[-1].relation.value_kind]
        return next(name for name in names if name != self.question.answer)

    def level_content(self) -> str:
        """The question and its facts: the same words may be asked of another world."""
        return "\n".join([self.question.text, *(hop.value for hop in self.question.hops)])

    def sample_text(self, rng: Rng) -> str:
        """A search for any person, or any name as the answer."""
        if rng.random() < 0.5:
            return str(ToolCall(SEARCH.name, {"query": rng.choice(self.world.names["person"])}))
        return rng.choice(self.world.names[rng.choice(list(self.world.names))])

    @property
    def num_found(self) -> int:
        """Facts of the way that the last result has brought, counted from the question."""
        shown = [number for number, hop in enumerate(self.question.hops, start=1) if f"\n{hop.subject}: " in self.said]
        return max(shown, default=0)

    def solve(self) -> list[str] | None:
        """Searches for the facts that are missing, and the answer."""
        if self.is_over:
            return None
        num_left = self.config.max_steps - self.num_steps - 1
        missing = self.question.hops[self.num_found :][: max(0, num_left)]
        return [*(str(ToolCall(SEARCH.name, {"query": hop.subject})) for hop in missing), self.question.answer]

    def hint(self) -> str:
        """The fact that was found last."""
        if not self.num_found:
            return f"First I look up {self.question.hops[0].subject}."
        hop = self.question.hops[self.num_found - 1]
        return hop.relation.sentence.format(subject=hop.subject, value=hop.value)
