"""Guess the number: a hidden whole number, and after each guess whether it is larger or smaller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ragen.config.bounds import Count, number
from ragen.env.attempts import AttemptsEnv
from ragen.env.base import StepResult
from ragen.errors import ConfigError
from ragen.seeding import Rng

LOW, HIGH = "too low", "too high"
LONGEST = 12
"""Characters of an answer that is read as a number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GuessNumberConfig:
    """The options of guess-the-number."""

    num_numbers: Annotated[
        int, "Consecutive numbers to guess from.", number(lambda x: 2 <= x <= 10**6, "from 2 to 1,000,000")
    ] = 100
    max_first: Annotated[
        int,
        "The smallest of them is drawn, from 1 to this; 1: they always begin with 1.",
        number(lambda x: 1 <= x <= 10**6, "from 1 to 1,000,000"),
    ] = 1
    max_steps: Annotated[Count, "Guesses of an episode; the last one ends it."] = 7

    def __post_init__(self) -> None:
        needed = self.num_numbers.bit_length()  # bisection leaves at most half of what is left each time
        if self.max_steps < needed:
            raise ConfigError(
                f"guess_number.max_steps is {self.max_steps}. To find one of {self.num_numbers} numbers for sure takes "
                f"{needed} guesses: raise max_steps or lower num_numbers."
            )


class GuessNumberEnv(AttemptsEnv):
    """An answer is a number; the hidden one gives 1, everything else 0."""

    config_class = GuessNumberConfig
    max_tokens = 100

    def reset(self, seed: int, member: int = 0) -> str:
        """Draw the numbers and the hidden one from `seed`; nothing is left to chance after that."""
        rng = Rng(seed, "guess_number")
        first = 1 + rng.below(self.config.max_first)
        return self.load(first, first + rng.below(self.config.num_numbers))

    def load(self, first: int, secret: int) -> str:
        """Start a new episode: numbers from `first` on, of which `secret` is the hidden one."""
        self.first, self.last, self.secret = first, first + self.config.num_numbers - 1, secret
        self.low, self.high = self.first, self.last  # what the answers so far leave
        self.guesses: list[str] = []
        self.num_steps, self.refusal, self.is_solved = 0, "", False
        return self.render()

    def step(self, action: str) -> StepResult:
        """Compare a guess with the hidden number; what is no number of the range is refused and counts as a guess."""
        self.count_step()
        guess, before = self.read(action), (self.low, self.high)
        if guess is not None:
            self.compare(guess)
        is_effective = (self.low, self.high) != before
        return self.result(reward=float(self.is_solved), is_valid=guess is not None, is_effective=is_effective)

    def read(self, text: str) -> int | None:
        """The number of an answer; None, and a reason to be told, where there is none that may be guessed."""
        self.refusal = ""
        digits = text.strip()
        if not (digits.isascii() and digits.isdecimal() and len(digits) <= LONGEST):
            self.refusal = "Your last answer was refused: it is not a whole number."
        elif not self.first <= int(digits) <= self.last:
            self.refusal = f"Your last answer was refused: {int(digits)} is not from {self.first} to {self.last}."
        return None if self.refusal else int(digits)

    def compare(self, guess: int) -> None:
        """Note what a guess tells about the hidden number."""
        if guess == self.secret:
            self.is_solved, self.low, self.high = True, guess, guess
        elif guess < self.secret:
            self.low = max(self.low, guess + 1)
        else:
            self.high = min(self.high, guess - 1)
        said = "right" if self.is_solved else LOW if guess < self.secret else HIGH
        self.guesses.append(f"{guess} {said}")

    def render(self) -> str:
        lines = [f"Numbers: {self.first} to {self.last}."]
        if self.guesses:
            lines.append(f"Guesses: {', '.join(self.guesses)}.")
        return "\n".join([*lines, self.refusal] if self.refusal else lines)

    def notes(self) -> str:
        return "An answer is one whole number. You are told whether it is too low or too high."

    def example_answer(self) -> str:
        """A number of the range that is not the hidden one."""
        other = self.first + Rng("example", self.level_content()).below(self.config.num_numbers - 1)
        return str(other if other < self.secret else other + 1)

    def sample_text(self, rng: Rng) -> str:
        """Any number of the range, whatever has been said before."""
        return str(self.first + rng.below(self.config.num_numbers))

    def level_content(self) -> str:
        """The range and the hidden number, which no observation shows."""
        return f"{self.first} {self.last} {self.secret}"

    def solve(self) -> list[str] | None:
        """The guesses of bisection from here: it knows what has been said and not the number itself."""
        if self.is_solved:
            return None
        low, high, guesses = self.low, self.high, []
        while not guesses or guesses[-1] != self.secret:
            guesses.append(middle := (low + high) // 2)
            low, high = (middle + 1, high) if middle < self.secret else (low, middle - 1)
        return [str(guess) for guess in guesses]

    def hint(self) -> str:
        """What is left, and the number in the middle of it."""
        if self.is_solved:
            return ""
        return f"From {self.low} to {self.high}, middle {(self.low + self.high) // 2}."
