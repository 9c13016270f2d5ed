"""A model that answers prompts over pipes, one line of JSON each: the child process of `ragen view --play`.

    python -m ragen.evaluation.answer MODEL      reads requests from stdin, writes answers to stdout

A request holds an id, the messages of a prompt (an assistant's message may carry the token ids that were sampled), the
environment's type and how to sample:

    {"id": 1, "env_type": "sokoban", "messages": [...], "enable_think": true, "is_growing": true, "max_tokens": 100,
     "max_model_len": 3600, "temperature": 0.0, "top_p": 1.0, "top_k": -1, "stop_strings": ["</answer>"], "seed": 7,
     "tools": [], "tools_text": ""}

`tools` are those that a reply may call, and `tools_text` their description at the end of the system message, which
goes where the chat template shows tools by itself.

The answer repeats the id: text, ids, logprobs, entropies, stop_reason, or an error in a sentence. The end of stdin ends
the process at once, also in the middle of a reply.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TextIO

from ragen.config.load import load_config
from ragen.config.schema import Config
from ragen.engine.base import Completion, Engine, Request, SamplingParams, StopReason
from ragen.env.tools import Tool
from ragen.errors import RagenError
from ragen.files import read_object
from ragen.llm_agent.agent_proxy import forced_prefix
from ragen.llm_agent.build import build_agent
from ragen.llm_agent.chat import Chat
from ragen.models.folder import longest_context
from ragen.models.resolve import resolve_model
from ragen.text import printable

Fields = Mapping[str, Any]


class Answerer:
    """One model, loaded when it is first asked; `tiny` is another one for other environments."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.key: tuple[str, int] | None = None
        self.engine = Engine()
        self.tokenizer: Any = None
        self.chats: dict[tuple[bool, bool, bool], Chat] = {}

    def __call__(self, fields: Fields) -> dict[str, Any]:
        """The reply to a request."""
        limit = self.load(fields["env_type"], fields["max_model_len"])
        tools = [Tool(**tool) for tool in fields["tools"]]
        chat = self.chat(enable_think=fields["enable_think"], is_growing=fields["is_growing"], has_tools=bool(tools))
        messages = fields["messages"]
        if chat.takes_tools:
            messages = [{**messages[0], "content": without_tools(messages[0]["content"], fields)}, *messages[1:]]
        prompt = prompt_ids(chat, messages, forced_prefix(fields["enable_think"]), tools)
        if len(prompt) + fields["max_tokens"] > limit:
            raise RagenError(
                f"The context is full: the prompt has {len(prompt)} tokens, and with a reply of {fields['max_tokens']} "
                f"it exceeds the {limit} of actor_rollout_ref.rollout.max_model_len or of the model."
            )
        params = SamplingParams(
            max_tokens=fields["max_tokens"],
            temperature=fields["temperature"],
            top_p=fields["top_p"],
            top_k=fields["top_k"],
            stop_token_ids=chat.stop_token_ids,
            stop_strings=tuple(fields["stop_strings"]),
        )
        completion = self.complete(Request(session=0, prompt_ids=prompt, params=params, seed=fields["seed"]))
        if completion.stop_reason is StopReason.ERROR:
            raise RagenError(completion.error)
        return {
            "text": chat.reply_text(completion.token_ids),
            "ids": completion.token_ids,
            "logprobs": completion.logprobs,
            "entropies": completion.entropies,
            "stop_reason": completion.stop_reason.value,
        }

    def load(self, env_type: str, max_model_len: int) -> int:
        """The engine of this model for this context, whose length is returned."""
        folder = resolve_model(self.model, env_types=[env_type])
        key = str(folder), fitting_length(folder, max_model_len)
        if self.key != key:
            self.engine.close()
            agent = build_agent(play_config(*key), env_types=[env_type])
            assert agent.chat is not None, "the native engine speaks in tokens"
            self.key, self.engine, self.tokenizer, self.chats = key, agent.engine, agent.chat.tokenizer, {}
        return key[1]

    def chat(self, *, enable_think: bool, is_growing: bool, has_tools: bool) -> Chat:
        key = enable_think, is_growing, has_tools
        if key not in self.chats:
            prefix = forced_prefix(enable_think)
            self.chats[key] = Chat(self.tokenizer, forced_prefix=prefix, is_growing=is_growing, has_tools=has_tools)
        return self.chats[key]

    def complete(self, request: Request) -> Completion:
        self.engine.submit(request)
        while not (done := self.engine.step()):
            pass
        self.engine.release(request.session)
        return done[0]


def play_config(model: str, max_model_len: int) -> Config:
    """The default configuration with this model and context, one reply at a time."""
    config = load_config()
    part = config.actor_rollout_ref
    rollout = dataclasses.replace(part.rollout, name="native", max_model_len=max_model_len, max_num_seqs=1)
    part = dataclasses.replace(part, model=dataclasses.replace(part.model, path=model), rollout=rollout)
    return dataclasses.replace(config, actor_rollout_ref=part)


def fitting_length(folder: Path | str, max_model_len: int) -> int:
    """The context of the configuration, or that of the model where it is shorter."""
    file = Path(folder) / "config.json"
    limit = longest_context(read_object(file)) if file.is_file() else None
    return min(max_model_len, limit.num_tokens) if limit else max_model_len


def without_tools(system: str, fields: Fields) -> str:
    """The system message without the description of the tools behind it."""
    return system.removesuffix(fields["tools_text"]).removesuffix("\n")


def prompt_ids(chat: Chat, messages: Sequence[Fields], prefix: str, tools: Sequence[Tool] = ()) -> list[int]:
    """A prompt as token ids: replies as they were sampled, those of a person as the model would have written them."""
    system, first, *rest = messages
    ids = chat.start(system["content"], first["content"], tools)
    for reply, asked in zip(rest[::2], rest[1::2], strict=True):
        said = reply.get("ids") or _encoded(chat, reply["content"].removeprefix(prefix))
        ids = ids + said + chat.append(said, asked["content"], role=asked["role"])
    return ids


def _encoded(chat: Chat, text: str) -> list[int]:
    text = text.encode("utf-8", "replace").decode()  # tokenizers refuse lone surrogates
    return chat.tokenizer.encode(text, add_special_tokens=False) + list(chat.stop_token_ids[:1])


# --- the process ----------------------------------------------------------------------------------------------------


def lines_until_end(source: TextIO) -> SimpleQueue[str]:
    """Lines as they come. At their end the process is over, whatever it is doing: whoever asked is gone."""
    lines: SimpleQueue[str] = SimpleQueue()

    def read() -> None:
        for line in source:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    return lines


def main(argv: Sequence[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends this process
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no answer

    def write(record: Fields) -> None:
        print(json.dumps(record), file=out, flush=True)

    lines, answer = lines_until_end(sys.stdin), Answerer(argv[0])
    import ragen.engine.native.build  # noqa: F401 - torch takes seconds, and nobody waits yet

    write({"is_ready": True})
    while True:
        fields = json.loads(lines.get())
        try:
            write({"id": fields["id"], **answer(fields)})
        except Exception as error:  # one request that fails is not the end
            text = str(error) if isinstance(error, RagenError) else f"{type(error).__name__}: {error}"
            write({"id": fields["id"], "error": printable(text)[:2000]})


if __name__ == "__main__":
    main(sys.argv[1:])
