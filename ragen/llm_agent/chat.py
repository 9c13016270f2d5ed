"""Conversations as token ids that only ever grow.

A chat template renders a whole conversation. Rendering it again after every turn, and encoding the text again,
gives other tokens than those that were sampled. So the template is read once, with placeholders, and taken apart
into the text between an assistant's reply and the next user message and the text from there to the next reply.
Each new user turn is then appended as the ids of these pieces; what the model wrote stays as it was sampled. The
results of tools are appended alike, between the pieces that the template puts around a tool message (tool_chat.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from ragen.env.tools import TOOL_CALL, Tool
from ragen.errors import ChatTemplateError
from ragen.llm_agent.markers import Markers, frame_markers, plain_words
from ragen.llm_agent.parsing import ANSWER, THINK
from ragen.llm_agent.tool_chat import ToolChat
from ragen.types import Message

SYSTEM, USER, REPLY, NEXT_USER = "be brief", "first question 7A", "earlier reply 7B", "second question 7C"
MAX_KNOWN = 10**6
"""Ids of prompts that are remembered, about 40 MB: a group's episodes begin alike, and many come to the same state."""
FALLBACK = re.compile(r"<0x[0-9A-F]{2}>")
"""Tokens for single bytes of characters without a token; any text may need them."""
# Some templates print today's date; a fixed one keeps prompts the same every day.
FIXED_DATE = "1 January 2025"
# A macro hides the function of the same name; transformers 5.22 hands no functions on to templates. The line break
# belongs to it: Jinja drops the one behind a block.
FIXED_CLOCK = f"{{% macro strftime_now(format) %}}{FIXED_DATE}{{% endmacro %}}\n"


class Chat:
    """Appends turns to conversations, for one tokenizer and one forced reply prefix."""

    def __init__(self, tokenizer: Any, *, forced_prefix: str, is_growing: bool = True, has_tools: bool = False) -> None:
        """`is_growing` False: every prompt starts anew (single_turn mode), so any template will do.

        `has_tools`: an environment offers tools, so the template is asked what it does with them.
        """
        if not getattr(tokenizer, "chat_template", None):
            raise ChatTemplateError(
                f"The tokenizer of {tokenizer.name_or_path!r} has no chat template. Use an instruct model, or save a "
                "chat_template.jinja into the model directory."
            )
        self.tokenizer = tokenizer
        self._known: dict[Hashable, list[int]] = {}
        self._num_known = 0
        self._special_ids = _special_ids(tokenizer)
        self._markers = Markers(list(self._special_ids))
        role_note = self._no_role_reason(is_growing=is_growing)
        self.has_system_role = not role_note
        first = self.render(self._first_messages(SYSTEM, USER), add_generation_prompt=True)
        if is_growing:
            self._after_reply, self._before_reply, lead = self._take_apart()
        else:
            self._after_reply, self._before_reply, lead = self._end_of_reply(), first.partition(USER)[2], ""
        # DeepSeek-style templates open the think block themselves, often with a line break behind it.
        does_open = self._before_reply.rstrip().endswith(THINK[0])
        opened = self._before_reply[self._before_reply.rindex(THINK[0]) :] if does_open else ""
        self._before_earlier_reply = self._before_reply.removesuffix(opened) + lead
        if does_open and forced_prefix == THINK[0]:
            self.forced_prefix, self.opened_prefix = "", opened
        else:  # a block that is open but not wanted is closed at once
            self.forced_prefix = (f"{THINK[1]}\n\n" if does_open else lead) + forced_prefix
            self.opened_prefix = forced_prefix
        tools = ToolChat(
            self.render_if_possible,
            self._first_messages(SYSTEM, USER),
            user_frame=(self._after_reply, self._before_reply),
            to_earlier=lambda before: before.removesuffix(opened) + lead,
            is_thinking=forced_prefix == THINK[0],
            is_growing=is_growing,
            is_asked=has_tools,
        )
        self.takes_tools = tools.takes_tools
        """The template shows tools by itself; else the system message describes them."""
        self._frames = {"user": (self._after_reply, self._before_reply), "tool": tools.frame}
        frame = [*re.split(f"{SYSTEM}|{USER}", first), self._after_reply, self._before_reply]
        frame += tools.frame if has_tools else ()
        # DeepSeek's headers are single tokens too, though not special ones; Llama 2's are plain text.
        added = {text: index for text, index in _plain_tokens(tokenizer).items() if text in "\n".join(frame)}
        self._markers = Markers([*self._special_ids, *added, *frame_markers(frame)])
        ids = (self._special_ids | added).items()
        self._marker_ids = {index for text, index in ids if not FALLBACK.fullmatch(text)} - {tokenizer.unk_token_id}
        self._num_markers: dict[str, int] = {}
        end = self._after_reply.lstrip()
        markers = [marker for marker in self._special_ids if end.startswith(marker)]
        self.end_of_turn_id = self._special_ids[max(markers, key=len)] if markers else None
        notes = [role_note, self._run_self_test() if is_growing else "", *tools.notes]
        self.note = " ".join(filter(None, notes))
        """What is done otherwise than the template would, for the log; empty where appending does just the same."""

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        return tuple(sorted({self.end_of_turn_id, self.tokenizer.eos_token_id} - {None}))

    def start(self, system: str, user: str, tools: Sequence[Tool] = ()) -> list[int]:
        """Ids of the first prompt: system message, first user message, header of the reply, forced prefix."""
        schemas = [tool.to_json() for tool in tools] if self.takes_tools else []

        def to_text(clean: Callable[[str], str]) -> str:
            messages = self._first_messages(clean(system), clean(user))
            shown = _map_texts(schemas, clean)
            return self.render(messages, add_generation_prompt=True, tools=shown) + self.forced_prefix

        frame = f"start {[tool.name for tool in tools]}"
        return self._encode_safely((system, user, repr(schemas)), frame, to_text)

    def append(self, reply_ids: Sequence[int], message: str, role: str = "user") -> list[int]:
        """Ids that follow a reply: its end marker unless it was sampled, the next message, header, prefix."""
        frame = self._frames[role]
        is_ended = bool(reply_ids) and reply_ids[-1] == self.end_of_turn_id
        # Llama-2 style templates put a space before the end marker; a model that ended by itself wrote its own.
        after_reply = frame[0].lstrip() if is_ended else frame[0]
        before_reply = frame[1] + self.forced_prefix
        ids = self._encode_safely(
            (role, is_ended, message), after_reply, lambda clean: after_reply + clean(message) + before_reply
        )
        return ids[1:] if is_ended else ids

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def reply_text(self, ids: Sequence[int]) -> str:
        """A sampled reply as text: with the opened prefix, without the end marker."""
        end = len(ids)
        while end and ids[end - 1] in self.stop_token_ids:
            end -= 1
        return self.opened_prefix + self.decode(ids[:end])

    def _first_messages(self, system: str, user: str) -> list[Message]:
        if self.has_system_role:
            return [{"role": "system", "content": system}, {"role": "user", "content": user}]
        return [{"role": "user", "content": f"{system}\n\n{user}"}]

    @property
    def special_strings(self) -> tuple[str, ...]:
        """The texts that have a meaning for the template; none of them may come from an environment."""
        return self._markers.texts

    def _clean(self, text: str) -> str:
        """Text that cannot pose as a chat marker. Templates trim messages, so it is trimmed here."""
        text = text.encode("utf-8", "replace").decode("utf-8")  # tokenizers refuse lone surrogates
        return self._markers.broken(text).strip()

    def _encode_safely(
        self, messages: Hashable, frame: str, to_text: Callable[[Callable[[str], str]], str]
    ) -> list[int]:
        """Ids of a text that holds messages, with exactly the markers of its frame, by count of their ids.

        They are remembered; the list is the caller's own.
        Texts are compared before a tokenizer normalises them; should one find a marker there all the same, the
        messages lose every character a marker could be made of.
        """
        key = messages, frame
        if key in self._known:
            return list(self._known[key])
        if frame not in self._num_markers:
            self._num_markers[frame] = self._count_markers(self._encode(to_text(lambda _: USER)))
        ids = self._encode(to_text(self._clean))
        if self._count_markers(ids) != self._num_markers[frame]:
            ids = self._encode(to_text(lambda text: plain_words(self._clean(text))))
        if self._num_known + len(ids) > MAX_KNOWN:
            self._known.clear()
            self._num_known = 0
        self._known[key] = ids
        self._num_known += len(ids)
        return list(ids)

    def _count_markers(self, ids: Sequence[int]) -> int:
        return sum(index in self._marker_ids for index in ids)

    def _encode(self, text: str) -> list[int]:
        # Not verbose: what is too long for the model ends its episode, so a tokenizer need not warn about it.
        return self.tokenizer.encode(text, add_special_tokens=False, verbose=False)

    def render(self, messages: list[Message], *, add_generation_prompt: bool, tools: Sequence[Any] = ()) -> str:
        """The template's text of a conversation."""
        try:
            return self.tokenizer.apply_chat_template(
                messages,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                tools=list(tools) or None,
                chat_template=FIXED_CLOCK + self.tokenizer.get_chat_template(tools=list(tools) or None),
                date_string=FIXED_DATE,
            )
        except Exception as error:  # a template may divide by zero as well as refuse
            roles = ", ".join(message["role"] for message in messages)
            raise ChatTemplateError(
                f"The chat template of {self.tokenizer.name_or_path!r} refuses a conversation of {roles}: "
                f"{type(error).__name__}: {error}. "
                "Use a template that alternates user and assistant messages."
            ) from error

    def render_if_possible(
        self, messages: list[Message], *, add_generation_prompt: bool = True, tools: Sequence[Any] = ()
    ) -> str:
        """The same; empty where the template refuses the conversation."""
        try:
            return self.render(messages, add_generation_prompt=add_generation_prompt, tools=tools)
        except ChatTemplateError:
            return ""

    def _no_role_reason(self, *, is_growing: bool) -> str:
        """Why the system text goes into the first user message; empty where the template has a system role."""
        messages = [{"role": "system", "content": REPLY}, {"role": "user", "content": USER}]
        # Where the template refuses, folding the text into the user turn is safe.
        if REPLY not in self.render_if_possible(messages):
            return "This chat template has no system role; the system text stands in the first user message."
        if is_growing and self._moves_system_text(messages):
            return "This chat template shows the system text in the last user message only; here it stays in the first."
        return ""

    def _moves_system_text(self, messages: list[Message]) -> bool:
        """Mistral's templates show the system text before the newest question, so that it moves with every turn."""
        later = [{"role": "assistant", "content": "yes"}, {"role": "user", "content": NEXT_USER}]
        text = self.render_if_possible([*messages, *later])
        return bool(text) and REPLY not in text.partition(USER)[0]  # if it is refused, taking it apart says why

    def _end_of_reply(self) -> str:
        """The text behind a last reply, empty where the template does not show one."""
        messages = [*self._first_messages(SYSTEM, USER), {"role": "assistant", "content": REPLY}]
        return self.render_if_possible(messages, add_generation_prompt=False).partition(REPLY)[2]

    def _take_apart(self) -> tuple[str, str, str]:
        """The text between a reply and the next user message, and between that message and the next reply.

        The third text is the white space which some templates (Llama 2, Mistral) put before earlier replies only.
        """
        messages = self._first_messages(SYSTEM, USER)
        messages += [{"role": "assistant", "content": REPLY}, {"role": "user", "content": NEXT_USER}]
        text = self.render(messages, add_generation_prompt=True)
        head, found_reply, rest = text.partition(REPLY)
        after_reply, found_user, before_reply = rest.partition(NEXT_USER)
        if not (found_reply and found_user):
            raise ChatTemplateError(
                f"The chat template of {self.tokenizer.name_or_path!r} does not show earlier replies in order, so a "
                "conversation cannot be continued by appending to it. Use agent_proxy.context_window_mode=single_turn "
                "or another template."
            )
        lead = head.partition(USER)[2].removeprefix(before_reply)
        return after_reply, before_reply, lead if lead.isspace() else ""

    def _encode_reply(self, text: str) -> list[int]:
        """Ids of a reply as a model would write it. Some tokenizers put a space before whatever they encode."""
        if self.end_of_turn_id is None:
            end_ids, gap = [], ""
        else:
            end_ids, gap = [self.end_of_turn_id], self._after_reply[: -len(self._after_reply.lstrip())]
        opened = self._encode(self.opened_prefix)
        ids = self._encode(self.opened_prefix + text + gap)
        ids = ids[len(opened) :] if ids[: len(opened)] == opened else self._encode(text + gap)
        return ids + end_ids

    def _join(self, replies: list[str]) -> str:
        """The text of the self-test's conversation, put together from the pieces of the template."""
        text = self.render(self._first_messages(SYSTEM, USER), add_generation_prompt=True)
        for number, reply in enumerate(replies):
            text = text.removesuffix(self._before_reply) + self._before_earlier_reply + reply
            text += f"{self._after_reply}question {number}{self._before_reply}"
        return text

    def _run_self_test(self) -> str:
        """Compare appended conversations with the template's own rendering of the same messages; a note, or empty."""
        replies = [f"{self.opened_prefix}look, then go {n}</think><answer>Up || Left</answer>" for n in (1, 2)]
        if self.opened_prefix.strip() != THINK[0]:
            replies = [f"{self.opened_prefix}Up</answer>", f"{self.opened_prefix}Left || Up</answer>"]
        appended = self.start(SYSTEM, USER)
        messages = self._first_messages(SYSTEM, USER)
        for number, reply in enumerate(replies):
            reply_ids = self._encode_reply(reply.removeprefix(self.opened_prefix))
            appended += reply_ids + self.append(reply_ids, f"question {number}")
            messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": f"question {number}"}]
        text = self.render(messages, add_generation_prompt=True)
        rendered = text + self.forced_prefix
        if self.decode(appended) == self.decode(self._encode(rendered)):
            is_canonical = appended == self._encode(rendered)
            return "" if is_canonical else "Encoding a rendered conversation splits some words differently."
        if text == self._join([reply.split(THINK[1])[-1] for reply in replies]):
            return (
                "This chat template shows earlier replies without their reasoning; here it stays in the context, "
                "because those tokens were sampled. Use agent_proxy.context_window_mode=single_turn for prompts "
                "without it."
            )
        raise ChatTemplateError(
            f"The chat template of {self.tokenizer.name_or_path!r} changes earlier turns when a conversation grows:\n"
            f"  appended: {self.decode(appended)[-300:]!r}\n  rendered: {rendered[-300:]!r}\n"
            "Use agent_proxy.context_window_mode=single_turn or another template."
        )


def _special_ids(tokenizer: Any) -> dict[str, int]:
    """Every special token by its text; `all_special_tokens` alone misses those without a role, as Llama 3's headers."""
    added = {token.content: index for index, token in tokenizer.added_tokens_decoder.items() if token.special}
    return added | dict(zip(tokenizer.all_special_tokens, tokenizer.all_special_ids, strict=True))


def _plain_tokens(tokenizer: Any) -> dict[str, int]:
    """Added tokens that are not special, without white space and the tags which prompts themselves speak of."""
    texts = {token.content: index for index, token in tokenizer.added_tokens_decoder.items() if not token.special}
    own = (*THINK, *ANSWER, *TOOL_CALL)
    return {text: index for text, index in texts.items() if text.strip() and text not in own}


def _map_texts(value: Any, clean: Callable[[str], str]) -> Any:
    """A structure of JSON with every text in it cleaned."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list | tuple):
        return [_map_texts(part, clean) for part in value]
    return {key: _map_texts(part, clean) for key, part in value.items()} if isinstance(value, Mapping) else value
