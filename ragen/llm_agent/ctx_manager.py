"""Contexts: what the model sees at each turn, in the three context modes, and what of it is trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ragen.config.schema import AgentProxyConfig
from ragen.llm_agent.chat import Chat
from ragen.llm_agent.es_manager import Seat
from ragen.llm_agent.prompts import state_message, summary, system_message, user_message
from ragen.types import Episode, Message, Sample, Turn, conversation

Asked = tuple[str, str]
"""A message that asks for a reply: its role and its text."""


@dataclass(kw_only=True, slots=True)
class Prompt:
    """The next prompt of an episode."""

    user: str
    role: str = "user"
    """Who speaks it: `user`, or `tool` where it is the result of a call."""
    turn_ids: list[int] = field(default_factory=list)
    """What the turn records: the appended ids in `full` mode, the whole prompt otherwise."""
    context_ids: list[int] = field(default_factory=list)
    """The whole prompt for the engine."""
    messages: list[Message] = field(default_factory=list)
    """The same as chat messages, for engines that speak text."""
    num_dropped_turns: int = 0
    """Earlier turns left out because they did not fit."""


class CtxManager:
    """Builds prompts for one chat (None: the engine speaks text) and one context mode."""

    def __init__(self, chat: Chat | None, agent: AgentProxyConfig, *, response_length: int, max_model_len: int) -> None:
        self.chat, self.agent = chat, agent
        self.response_length, self.max_model_len = response_length, max_model_len

    def max_reply(self, seat: Seat) -> int:
        """Most tokens of a reply: response_length, or what the prompt promises where that is less and enforced."""
        limit = self.response_length
        return min(limit, seat.max_tokens) if self.agent.enforce_max_tokens else limit

    def max_prompt(self, seat: Seat) -> int:
        """Most tokens of a prompt; room for a whole reply is kept free behind it."""
        return self.max_model_len - self.max_reply(seat)

    def system(self, seat: Seat) -> str:
        takes_tools = self.chat is not None and self.chat.takes_tools
        return system_message(seat, self.agent, describes_tools=not takes_tools)

    def next_prompt(self, seat: Seat, episode: Episode, context_ids: list[int]) -> Prompt:
        """The prompt of the next turn; it may exceed `max_prompt`. `context_ids`: the last prompt and its reply."""
        user = user_message(seat, episode.turns, self.agent)
        build = self._full if self.agent.context_window_mode == "full" else self._limited
        return build(seat, episode, user, context_ids)

    def _asked(self, seat: Seat, user: str) -> Asked:
        """What asks for the next reply: the result of the last call, or else the user message."""
        return ("user", user) if seat.tool_result is None else ("tool", seat.tool_result)

    def no_room(self, seat: Seat, num_tokens: int) -> str:
        """Why an episode ended before its first reply."""
        limit = self.max_reply(seat)
        is_own = limit < self.response_length
        key = f"custom_envs.{seat.tag}.max_tokens" if is_own else "actor_rollout_ref.rollout.response_length"
        return (
            f"The first prompt of {seat.tag} has {num_tokens} tokens; with a reply of {key}={limit} it exceeds "
            f"max_model_len={self.max_model_len}. Raise actor_rollout_ref.rollout.max_model_len or lower {key}."
        )

    def _full(self, seat: Seat, episode: Episode, user: str, context_ids: list[int]) -> Prompt:
        """The whole conversation: only the new message is added to it."""
        role, text = self._asked(seat, user)
        if self.chat is None:
            return Prompt(user=text, role=role, messages=[*episode.messages(), {"role": role, "content": text}])
        if episode.turns:
            new = self.chat.append(episode.turns[-1].response_ids, text, role=role)
        else:
            new = self.chat.start(episode.system, text, seat.tools)
        return Prompt(user=text, role=role, turn_ids=new, context_ids=context_ids + new)

    def _limited(self, seat: Seat, episode: Episode, user: str, _: list[int]) -> Prompt:
        """The last turns, as real messages or in a summary; older ones go until the rest fits."""
        size = self.agent.max_context_window  # counts the present turn
        window = episode.turns if size < 0 else episode.turns[max(0, len(episode.turns) - size + 1) :]
        build = _LIMITED[self.agent.context_window_mode]
        for num_dropped in range(len(window) + 1):
            prompt = build(self, seat, episode, window[num_dropped:], user)
            prompt.turn_ids, prompt.num_dropped_turns = prompt.context_ids, num_dropped
            if len(prompt.context_ids) <= self.max_prompt(seat):
                break
        return prompt

    def _recent_turns(self, seat: Seat, episode: Episode, shown: list[Turn], user: str) -> Prompt:
        """The turns as real messages, replies exactly as sampled."""
        asked: list[Asked] = [(turn.role, turn.user) for turn in shown]
        asked.append(self._asked(seat, user) if shown else ("user", user))
        if asked[0][0] == "tool":  # a conversation does not begin with a result: the state holds task and result
            asked[0] = "user", state_message(seat, shown[0].observation, self.agent)
        role, text = asked[-1]
        if self.chat is None:
            messages: list[Message] = [{"role": "system", "content": episode.system}]
            for turn, (speaker, said) in zip(shown, asked):
                messages += [{"role": speaker, "content": said}, {"role": "assistant", "content": turn.text}]
            return Prompt(user=text, role=role, messages=[*messages, {"role": role, "content": text}])
        ids = self.chat.start(episode.system, asked[0][1], seat.tools)
        for turn, (speaker, said) in zip(shown, asked[1:], strict=True):
            ids = ids + turn.response_ids + self.chat.append(turn.response_ids, said, role=speaker)
        return Prompt(user=text, role=role, context_ids=ids)

    def _one_message(self, seat: Seat, episode: Episode, shown: list[Turn], user: str) -> Prompt:
        """One user message: the turns in a line each, then the present state."""
        text = summary(shown, seat, first=len(episode.turns) - len(shown) + 1, action_sep=self.agent.action_sep)
        text = f"{text}\n{user}" if text else user
        if self.chat is None:
            return Prompt(user=text, messages=[*conversation(episode.system, []), {"role": "user", "content": text}])
        return Prompt(user=text, context_ids=self.chat.start(episode.system, text, seat.tools))


_LIMITED = {"limited_multi_turn": CtxManager._recent_turns, "single_turn": CtxManager._one_message}


def to_samples(
    episodes: Sequence[Episode], scores: Sequence[float], *, is_full_context: bool, use_turn_scores: bool
) -> list[Sample]:
    """The training sequences of episodes, by concatenating what was recorded; nothing is encoded again.

    `scores` holds what each episode earns (its reward and penalty, perhaps normalised). In `full` mode it stands
    at the end of the last reply; in the limited modes every turn is a sample and earns it. With `use_turn_scores`
    each reply earns its own reward and penalty instead.
    """
    samples = []
    for episode, score in zip(episodes, scores, strict=True):
        if is_full_context:
            samples.append(_sample(episode, episode.turns, score, use_turn_scores))
        else:
            samples += [_sample(episode, [turn], score, use_turn_scores) for turn in episode.turns]
    return samples


def _sample(episode: Episode, turns: list[Turn], score: float, use_turn_scores: bool) -> Sample:
    assert turns, "an episode without a reply has nothing to train on; its group is incomplete and is dropped first"
    ids: list[int] = []
    mask: list[int] = []
    logprobs: list[float] = []
    entropies: list[float] = []
    spans: list[tuple[int, int]] = []
    for turn in turns:
        start = len(ids) + len(turn.prompt_ids)
        ids += turn.prompt_ids + turn.response_ids
        mask += [0] * len(turn.prompt_ids) + [1] * len(turn.response_ids)
        logprobs += [0.0] * len(turn.prompt_ids) + turn.logprobs
        entropies += [0.0] * len(turn.prompt_ids) + turn.entropies
        spans.append((start, len(ids)))
    if use_turn_scores:
        turn_scores = [turn.reward + turn.penalty for turn in turns]
    else:
        turn_scores = [0.0] * (len(turns) - 1) + [score]
    return Sample(
        group_id=episode.group_id,
        member=episode.member,
        input_ids=ids,
        loss_mask=mask,
        logprobs=logprobs,
        entropies=entropies if all(turn.has_entropies for turn in turns) else [],
        turn_spans=spans,
        turn_scores=turn_scores,
        turn_states=[turn.observation for turn in turns],
        turn_rewards=[turn.reward + turn.penalty for turn in turns],
        turn_is_invalid=[turn.is_invalid for turn in turns],
    )
