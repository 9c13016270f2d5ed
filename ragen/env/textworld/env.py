"""A generated text adventure: rooms, doors, things, and a quest; answers are commands such as "take key from box".

Needs the extra: pip install -e '.[textworld]'.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

from ragen.config.bounds import Count, number
from ragen.env.base import StartedEnv, StepResult, step_info
from ragen.env.textworld.games import game_file, level_hash
from ragen.seeding import Rng, fixed_hash

MAX_COMMAND = 100
"""Characters of a command."""
COMMAND = re.compile(r"[A-Za-z0-9' -]+")
"""Without full stops: behind one, a second command would follow."""

PROMPT = re.compile(r"(?:\nWould you like to RESTART[^\n]*)?\n>\s.*\Z", re.DOTALL)
"""What an interpreter shows a person behind the game's words: its prompt and the status line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TextWorldConfig:
    """The size of the world and of its quest."""

    num_rooms: Annotated[int, "Rooms.", number(lambda x: 1 <= x <= 20, "from 1 to 20")] = 2
    num_objects: Annotated[int, "Things.", number(lambda x: 1 <= x <= 40, "from 1 to 40")] = 4
    quest_length: Annotated[int, "Commands of the quest.", number(lambda x: 1 <= x <= 10, "from 1 to 10")] = 2
    quest_breadth: Annotated[int, "Lines of the quest.", number(lambda x: 1 <= x <= 5, "from 1 to 5")] = 1
    show_commands: Annotated[bool, "Whether an observation lists the commands that do something now."] = True
    max_steps: Annotated[Count, "Commands of an episode."] = 20


class TextWorldEnv(StartedEnv):
    """A text adventure of TextWorld. The reward is the game's own: a point for each part of the quest, mostly one."""

    config_class = TextWorldConfig
    max_tokens = 150
    game: Any = None

    def reset(self, seed: int, member: int = 0) -> str:
        """Start the game of `seed`; nothing in it is left to chance."""
        cfg = self.config
        sizes = {"nb_rooms": cfg.num_rooms, "nb_objects": cfg.num_objects}
        sizes |= {"quest_length": cfg.quest_length, "quest_breadth": cfg.quest_breadth}
        file = game_file(fixed_hash(seed, "textworld") % 2**31, sizes)
        self.close()
        self.game, self.content = start(str(file)), level_hash(file)
        self.state = self.game.reset()
        self.num_steps, self.is_done = 0, False
        self.said = f"{self.state.objective.strip()}\n\n{self.state.description.strip()}"
        return self.render()

    def step(self, action: str) -> StepResult:
        """Give the game a command; what is none stays here and is answered with the reason."""
        assert not self.is_done, "the episode is over: call reset"
        self.num_steps += 1
        command = " ".join(action.split())
        before, reward = self.text, 0.0
        is_valid = command.lower() in map(str.lower, self.state.admissible_commands)
        if problem := self.problem(command):
            self.said = problem
        else:
            self.state, reward, _ = self.game.step(command)
            self.said = PROMPT.sub("", self.state.feedback).strip()
        is_over = bool(self.state.won or self.state.lost)
        is_last = self.num_steps >= self.config.max_steps
        self.is_done = is_over or is_last
        return StepResult(
            observation=self.render(),
            reward=float(reward),
            terminated=is_over,
            truncated=is_last and not is_over,
            info=step_info(
                is_valid=is_valid, is_effective=is_valid and self.text != before, is_success=bool(self.state.won)
            ),
        )

    def problem(self, command: str) -> str:
        """Why a text is no command; empty where the game may read it. Commands to its interpreter are none."""
        words = command.lower().split()
        if not words or len(command) > MAX_COMMAND or not COMMAND.fullmatch(command) or "then" in words:
            return f"That is not a command: write one, of at most {MAX_COMMAND} letters."
        verbs = sorted({verb.split()[0].lower() for verb in self.state.verbs})
        return "" if words[0] in verbs else f"A command begins with one of: {', '.join(verbs)}."

    def render(self) -> str:
        self.text = self.said
        if self.config.show_commands and not self.is_done:
            self.text += f"\n\nYou can: {'; '.join(self.state.admissible_commands)}."
        return self.text

    def notes(self) -> str:
        return "An answer is one command, such as: go north."

    def example_answer(self) -> str:
        return "inventory"

    def sample_text(self, rng: Rng) -> str:
        return rng.choice(self.state.admissible_commands)

    def level_content(self) -> str:
        return self.content

    def solve(self) -> list[str] | None:
        """TextWorld's own way to the end of the quest from the present state."""
        plan = None if self.is_done else self.state.policy_commands
        return list(plan) if plan and self.num_steps + len(plan) <= self.config.max_steps else None

    def hint(self) -> str:
        plan = self.solve()
        return f"The quest needs {len(plan)} more commands, the next is: {plan[0]}." if plan else ""

    def close(self) -> None:
        if self.game is not None:
            self.game.close()


def start(file: str) -> Any:
    """A game with what an observation and the solver need."""
    package = import_module("textworld")
    wanted = ("admissible_commands", "description", "feedback", "lost", "objective", "policy_commands", "verbs", "won")
    return package.start(file, package.EnvInfos(**dict.fromkeys(wanted, True)))
