"""A generator of reasoning-gym as an environment: the seed draws a question, an answer is scored by its generator.

Needs the extra: pip install -e '.[reasoning-gym]'.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

from ragen.config.bounds import Count
from ragen.env.arithmetic import Refused
from ragen.env.attempts import AttemptsEnv
from ragen.env.base import StepResult
from ragen.env.package_options import check_options
from ragen.env.reasoning_gym.guard import check_answer
from ragen.env.shared_random import OwnRandom
from ragen.env.survey import read_survey
from ragen.errors import ConfigError, needing_extra
from ragen.seeding import fixed_hash

SURVEY = read_survey(Path(__file__).with_name("tasks.json"))
OF_THE_LEVEL = {"seed", "size"}
"""Options of every generator that are no options here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReasoningGymConfig:
    """Which generator, and its own options."""

    name: Annotated[str, "Generator, such as basic_arithmetic; all of them are in docs/adapters.md."] = (
        "basic_arithmetic"
    )
    options: Annotated[dict[str, Any], "Options of the generator's own config, such as {min_terms: 2}."] = field(
        default_factory=dict
    )
    max_steps: Annotated[Count, "Answers of an episode; the last one ends it."] = 1

    def __post_init__(self) -> None:
        SURVEY.check(self.name, "reasoning_gym.name")
        if taken := OF_THE_LEVEL & set(self.options):
            raise ConfigError(f"reasoning_gym.options.{min(taken)} comes from the level's seed. Leave it out.")


class ReasoningGymEnv(AttemptsEnv):
    """A question of reasoning-gym. The reward is its generator's score of the answer that ends the episode."""

    config_class = ReasoningGymConfig
    max_tokens = 400

    def reset(self, seed: int, member: int = 0) -> str:
        """Draw the question of `seed`; nothing is left to chance after that."""
        self.dataset, self.entry = draw(self.config.name, self.config.options, seed)
        self.num_steps, self.said, self.is_solved = 0, "", False
        return self.render()

    def step(self, action: str) -> StepResult:
        """Score an answer; one that its scorer must not see is refused with the reason."""
        self.count_step()
        before, is_valid, score = self.said, True, 0.0
        try:
            score = self.score(action)
            self.said = f"Your last answer is not right; its score is {score:.2f} of 1."
        except Refused as reason:
            is_valid = False
            self.said = f"Your last answer was refused: {reason}."
        self.is_solved = score >= 1
        if self.is_solved:
            self.said = ""
        # Only the last answer pays: many wrong ones must not sum up to a right one.
        reward = score if self.is_done else 0.0
        return self.result(reward=reward, is_valid=is_valid, is_effective=self.said != before or self.is_solved)

    def score(self, text: str) -> float:
        """What the generator's own scorer gives, from 0 to 1; a scorer that fails on a text gives 0."""
        text = text.strip()
        check_answer(self.config.name, text)
        try:
            score = float(self.dataset.score_answer(answer=text, entry=self.entry))
        except Exception:  # scorers read the text in many ways, most of which raise on what a model may write
            return 0.0
        return min(1.0, max(0.0, score)) if math.isfinite(score) else 0.0

    def render(self) -> str:
        return "\n\n".join([self.entry["question"], self.said] if self.said else [self.entry["question"]])

    def level_content(self) -> str:
        return self.entry["question"]

    def solve(self) -> list[str] | None:
        """The generator's own answer, where its scorer takes it."""
        answer = self.entry["answer"]
        try:
            return [answer] if not self.is_done and isinstance(answer, str) and self.score(answer) >= 1 else None
        except Refused:
            return None


def draw(name: str, options: dict[str, Any], seed: int) -> tuple[Any, dict[str, Any]]:
    """The generator with the level's seed, and its question. The same on every call and in every process."""
    with needing_extra("reasoning-gym", f"reasoning_gym.name {name!r} needs reasoning-gym, which is not installed"):
        package = import_module("reasoning_gym")
    _, config_class = package.factory.DATASETS[name]
    check_options(options, config_class, "reasoning_gym.options", own=OF_THE_LEVEL)
    number = fixed_hash(seed, "reasoning_gym") % 2**31
    with OwnRandom(number):  # some generators draw from what all threads share
        try:
            dataset = package.create_dataset(name, seed=number, size=1, **options)
        except (TypeError, AssertionError, ValueError) as error:
            raise ConfigError(f"reasoning_gym.options {options} for {name!r}: {error}") from error
        return dataset, dataset[0]
