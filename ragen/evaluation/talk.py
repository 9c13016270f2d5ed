"""What `ragen chat` does: a conversation with a model, in a terminal or through pipes.

Every line is a message. The conversation is kept as token ids, as in a rollout: replies stay as they were sampled and
the next message is appended to them. What the model writes is shown as it comes, without power over the terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from ragen.engine.base import Completion, Engine, Request, SamplingParams, StopReason
from ragen.errors import EngineError
from ragen.llm_agent.chat import Chat
from ragen.llm_agent.prompts import ASSISTANT
from ragen.models.resolve import model_path_of, resolve_model
from ragen.seeding import fixed_hash
from ragen.text import printable

__all__ = ["ASSISTANT", "COMMANDS", "ChatOptions", "Conversation", "talk"]

COMMANDS = "/reset forgets the conversation, /quit ends it, Ctrl-D too."
INCOMPLETE = "\ufffd"
"""What a decoder writes for the first bytes of a character."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatOptions:
    """How to talk."""

    model: str
    """A checkpoint, a run (its newest actor counts), or any model_path."""
    system: str
    """System prompt."""
    max_tokens: int
    """Most tokens of a reply."""
    max_model_len: int
    """Most tokens of the conversation; the model's own limit where that is less."""
    temperature: float
    """0 is greedy."""
    top_p: float
    seed: int
    """Same seed and same messages: same replies."""


class Conversation:
    """Messages and replies as token ids that only grow."""

    def __init__(self, engine: Engine, chat: Chat, options: ChatOptions, *, max_model_len: int) -> None:
        self.engine, self.chat, self.options, self.max_model_len = engine, chat, options, max_model_len
        self.ids: list[int] = []
        """Everything so far, replies as sampled."""
        self.reply_ids: list[int] = []
        """The last reply."""
        self.num_replies = 0
        self.params = SamplingParams(
            max_tokens=options.max_tokens,
            temperature=options.temperature,
            top_p=options.top_p,
            stop_token_ids=chat.stop_token_ids,
        )

    def reset(self) -> None:
        self.ids, self.reply_ids, self.num_replies = [], [], 0
        self.engine.release(0)

    def say(self, text: str, show: Callable[[str], None]) -> StopReason:
        """Send a message; `show` is given the reply piece by piece. A full context raises, and nothing changes."""
        new = self.chat.append(self.reply_ids, text) if self.ids else self.chat.start(self.options.system, text)
        prompt = self.ids + new
        room = self.max_model_len - len(prompt)
        if room < 1:
            raise EngineError(
                f"The context is full: {len(prompt)} tokens with this message, {self.max_model_len} fit. "
                "/reset starts anew."
            )
        params = self.params if room >= self.params.max_tokens else replace(self.params, max_tokens=room)
        seed = fixed_hash(self.options.seed, self.num_replies)
        completion = self._answer(Request(session=0, prompt_ids=prompt, params=params, seed=seed), show)
        if completion.stop_reason is StopReason.ERROR:
            self.engine.release(0)
            raise EngineError(completion.error)
        self.ids, self.reply_ids = prompt + completion.token_ids, completion.token_ids
        self.num_replies += 1
        return completion.stop_reason

    def _answer(self, request: Request, show: Callable[[str], None]) -> Completion:
        shown = ""
        self.engine.submit(request)
        while True:
            done = self.engine.step()
            text = self.chat.reply_text(done[0].token_ids if done else self.engine.written(0))
            if text.startswith(shown) and (done or not text.endswith(INCOMPLETE)):
                show(text[len(shown) :])
                shown = text
            if done:
                return done[0]


# --- the program


def open_conversation(options: ChatOptions) -> tuple[Conversation, list[str]]:
    """Load the model; what is worth saying of it comes along."""
    from ragen.evaluation.answer import fitting_length, play_config
    from ragen.llm_agent.build import build_agent
    from ragen.trainer.checkpoints.checksums import verify

    folder = resolve_model(model_path_of(options.model))
    if isinstance(folder, Path):
        verify(folder.parent, role=folder.name)
    length = fitting_length(folder, options.max_model_len)
    agent = build_agent(play_config(str(folder), length), env_types=())
    assert agent.chat is not None, "the native engine speaks in tokens"
    chat = Chat(agent.chat.tokenizer, forced_prefix="")
    notes = [f"Model: {folder}", *filter(None, (chat.note, agent.engine.note))]
    return Conversation(agent.engine, chat, options, max_model_len=length), notes


def talk(options: ChatOptions, source: TextIO = sys.stdin, out: TextIO = sys.stdout, notes: TextIO = sys.stderr) -> int:
    """Read messages until their end; replies go to `out`, everything else to `notes`."""
    conversation, facts = open_conversation(options)
    for fact in facts:
        print(printable(fact), file=notes)
    is_terminal = source.isatty()
    if is_terminal:
        print(COMMANDS, file=notes)
    for text in messages(source, notes, is_terminal=is_terminal):
        if text == "/quit":
            break
        if text == "/reset":
            conversation.reset()
            print("The conversation is forgotten.", file=notes)
        elif text.startswith("/"):
            name = printable(text.split()[0])
            print(f"Unknown command {name}. {COMMANDS} A space before it sends the text.", file=notes)
        else:
            answer(conversation, text, out, notes)
    return 0


def answer(conversation: Conversation, text: str, out: TextIO, notes: TextIO) -> None:
    def show(piece: str) -> None:
        print(printable(piece), end="", file=out, flush=True)

    try:
        reason = conversation.say(text.strip(), show)
    except EngineError as error:
        print(printable(str(error)), file=notes)
        return
    show("\n")
    if reason is StopReason.LENGTH:
        print(f"(cut at {len(conversation.reply_ids)} tokens: --max-tokens)", file=notes)


def messages(source: TextIO, notes: TextIO, *, is_terminal: bool) -> Iterator[str]:
    """Lines that hold something; on a terminal each is asked for."""
    while True:
        if is_terminal:
            print("> ", end="", file=notes, flush=True)
        line = source.readline()
        if not line:
            return
        if line.strip():
            yield line.rstrip("\n") if line.startswith(" ") else line.strip()
