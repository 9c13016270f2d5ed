"""What a chat template does with tools: whether it shows them, and what it puts around their results.

Both are found out by asking the template, at start. Where it does not show tools in the form that replies are read in,
the system message describes them; where it has no tool role of its own, results come as user messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ragen.env.tools import TOOL_CALL, Tool, ToolCall, one_text
from ragen.types import Message

RESULT, CALL, NEXT = "earlier result 7D", "earlier call 7E", "another question 7F"
RESPONSE = ("<tool_response>\n", "\n</tool_response>")
"""Around a result in a user message."""
PROBE = Tool(name="probe_7G", description="Nothing.", parameters=one_text("text"))

Frame = tuple[str, str]
"""The text between a reply and a message, and between that message and the next reply."""

DESCRIBED = f"This chat template shows no tools in the form of {TOOL_CALL[0]}; the system message describes them."
FUNCTIONS = "Replies without a thought call tools within <answer>; the system message describes them."
NO_ROLE = "This chat template has no tool role; results of tools come as user messages."


def to_user(message: Message) -> Message:
    """A message for an engine that speaks text: its server asks for more of a tool message than is known here."""
    if message["role"] != "tool":
        return message
    return {"role": "user", "content": message["content"].join(RESPONSE)}


class Render(Protocol):
    """`Chat.render_if_possible`: empty where the template refuses."""

    def __call__(self, messages: list[Message], *, tools: Sequence[Any] = ()) -> str: ...


class ToolChat:
    """The answers of one template."""

    def __init__(
        self,
        render: Render,
        first: list[Message],
        *,
        user_frame: Frame,
        to_earlier: Callable[[str], str],
        is_thinking: bool,
        is_growing: bool,
        is_asked: bool,
    ) -> None:
        """`to_earlier` makes of the text before the next reply that before an earlier one."""
        self.render, self.first, self.to_earlier = render, first, to_earlier
        self.user_frame = user_frame
        self.frame: Frame = (user_frame[0] + RESPONSE[0], RESPONSE[1] + user_frame[1])
        self.takes_tools = False
        self.notes: list[str] = []
        if not is_asked:
            return
        self.takes_tools = is_thinking and self._shows_tools(is_growing=is_growing)
        if not self.takes_tools:
            self.notes.append(DESCRIBED if is_thinking else FUNCTIONS)
        if is_growing:
            found = self._take_apart()
            if found is not None and self._fits(found):
                self.frame = found
            else:
                self.notes.append(NO_ROLE)

    @property
    def _schemas(self) -> list[Any]:
        return [PROBE.to_json()] if self.takes_tools else []

    def _shows_tools(self, *, is_growing: bool) -> bool:
        """The template names the tools and the form of a call, and leaves them where they are as turns follow."""
        user = self.first[-1]["content"]
        later = [*self.first, {"role": "assistant", "content": CALL}, {"role": "user", "content": NEXT}]
        tools = [PROBE.to_json()]
        text = self.render(self.first, tools=tools)
        grown = self.render(later, tools=tools) if is_growing else text
        is_shown = bool(grown) and all(part in text for part in (PROBE.name, TOOL_CALL[0], '"arguments"'))
        return (
            is_shown
            and text.partition(user)[0] == grown.partition(user)[0]
            and PROBE.name not in grown.partition(user)[2]
        )

    def _take_apart(self) -> Frame | None:
        """The pieces around a tool message; None where the template refuses one or shows it as a reply."""
        reply: Message = {"role": "assistant", "content": CALL}
        as_result, as_reply = (
            self.render([*self.first, reply, {"role": role, "content": RESULT}], tools=self._schemas)
            for role in ("tool", "assistant")
        )
        if as_result == as_reply:
            return None
        after_reply, found, before_reply = as_result.partition(CALL)[2].partition(RESULT)
        return (after_reply, before_reply) if found else None

    def _fits(self, frame: Frame) -> bool:
        """The self-test: calls, results and a question, put together from the pieces, are what the template renders."""
        call = ToolCall(PROBE.name, {"text": "x"}).block
        turns = [(call, "tool", "result 0"), (call, "tool", "result 1"), ("done", "user", NEXT), (call, "tool", "last")]
        messages = list(self.first)
        text = self.render(messages, tools=self._schemas)
        before = self.user_frame[1]
        for reply, role, said in turns:
            messages += [{"role": "assistant", "content": reply}, {"role": role, "content": said}]
            around = frame if role == "tool" else self.user_frame
            text = text.removesuffix(before) + self.to_earlier(before) + reply + around[0] + said + around[1]
            before = around[1]
        return text == self.render(messages, tools=self._schemas)
