"""A small environment with tools for tests: it gives what it is told to, or fails as it is told to."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from ragen.env import Tool, ToolEnv, ToolRefused
from ragen.env.tools import ToolCall

ECHO = Tool(
    name="echo",
    description="Says the text again.",
    parameters={
        "type": "object",
        "properties": {"text": {"type": "string"}, "times": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["text"],
    },
)
NEVER = threading.Event()


@dataclass(frozen=True, kw_only=True)
class EchoToolConfig:
    max_steps: int = 5
    word: str = "please"
    """The right answer."""


class EchoTool(ToolEnv):
    """`echo` repeats a text; the texts raise, refuse, exit, number, hang, spin and long do what they say."""

    config_class = EchoToolConfig

    def __init__(self, config: EchoToolConfig | None = None) -> None:
        super().__init__(config or EchoToolConfig())
        self.used: list[dict[str, Any]] = []

    def reset(self, seed: int, member: int = 0) -> str:
        return self.begin(f"Say the word of level {seed}.")

    def tools(self) -> list[Tool]:
        return [ECHO]

    def use(self, name: str, arguments: dict[str, Any]) -> str:
        text = arguments["text"]
        if text == "raise":
            raise ZeroDivisionError("broken")
        if text == "refuse":
            raise ToolRefused("not today")
        if text == "exit":
            raise SystemExit(3)
        if text == "number":
            return 7  # pyright: ignore[reportReturnType]
        if text == "hang":
            NEVER.wait()
        while text == "spin":
            pass
        return "x" * 50_000 if text == "long" else " ".join([text] * arguments.get("times", 1))

    def is_right(self, answer: str) -> bool:
        return answer.strip() == self.config.word

    def sample_text(self, rng: Any) -> str:
        return str(ToolCall("echo", {"text": rng.choice(["a", "b"])}))

    def solve(self) -> list[str] | None:
        return None if self.is_over else [str(ToolCall("echo", {"text": "hm"})), self.config.word][bool(self.said) :]
