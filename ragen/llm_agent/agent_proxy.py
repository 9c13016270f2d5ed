"""Rollouts: many episodes at once, each moving on the moment its environment has answered.

`python -m ragen.llm_agent.agent_proxy --config-name _2_sokoban` evaluates a model; it is `ragen eval`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace

import numpy as np

from ragen.config.schema import AgentProxyConfig
from ragen.engine.base import Completion, Engine, Request, SamplingParams, StopReason
from ragen.env.tools import TOOL_CALL
from ragen.errors import ConfigError
from ragen.llm_agent.chat import Chat
from ragen.llm_agent.ctx_manager import CtxManager, Prompt
from ragen.llm_agent.env_threads import POLL_S
from ragen.llm_agent.es_manager import EsManager, GroupLevel, PendingTurn, Seat
from ragen.llm_agent.parsing import ANSWER, THINK, ParsedReply, parse_reply
from ragen.llm_agent.rewards import replace_reward, reward_function
from ragen.llm_agent.tool_chat import to_user
from ragen.seeding import fixed_hash
from ragen.types import Episode, Status, Turn

ENTROPY_DECIMALS = 4
MAX_TEXT = 100_000
"""Characters of a reply that are parsed; a model that writes more has long lost its way."""


def forced_prefix(enable_think: bool) -> str:
    """What every reply is made to start with."""
    return THINK[0] if enable_think else ANSWER[0]


def stop_strings(configured: tuple[str, ...], *, has_tools: bool) -> tuple[str, ...]:
    """The texts that end a reply: where a call of a tool may stand for an answer, its end is one like theirs."""
    is_added = has_tools and ANSWER[1] in configured and TOOL_CALL[1] not in configured
    return (*configured, TOOL_CALL[1]) if is_added else configured


OnEpisode = Callable[[Episode], None]
"""Called with each episode as it ends."""


def ignore(episode: Episode) -> None:
    """Nobody waits for single episodes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutPlan:
    """Which levels a rollout plays, and how its replies are drawn."""

    levels: Sequence[GroupLevel | None]
    """[groups] The level of each group; None: the group is not played."""
    noise_seed: int
    """Key of all sampling noise."""
    params: SamplingParams


@dataclass(kw_only=True, slots=True)
class Play:
    """An episode in progress."""

    seat: Seat
    episode: Episode
    context_ids: list[int] = field(default_factory=list)
    """Everything the model has seen and said, in `full` mode."""
    prompt: Prompt | None = None


class AgentProxy:
    """Plays episodes with an engine. `chat` is None for engines that speak text."""

    def __init__(
        self,
        engine: Engine,
        chat: Chat | None,
        agent: AgentProxyConfig,
        *,
        format_penalty: float,
        reward: str | None = None,
        response_length: int,
        max_model_len: int,
    ) -> None:
        self.engine, self.chat, self.agent = engine, chat, agent
        self.format_penalty, self.reward_name = format_penalty, reward
        self.reward_function = reward_function(reward)
        self.ctx = CtxManager(chat, agent, response_length=response_length, max_model_len=max_model_len)

    @property
    def notes(self) -> list[str]:
        """What engine and chat template do otherwise than one might expect, for the log."""
        return [note for note in (self.engine.note, self.chat.note if self.chat else "") if note]

    def rollout(self, environments: EsManager, plan: RolloutPlan, on_episode: OnEpisode = ignore) -> list[Episode]:
        """Play every seat once whose group has a level.

        `on_episode` is called as episodes end; the result is in the order of the seats.
        """
        plays = [self.start(seat) for seat in environments.reset(plan.levels)]
        running: dict[Future[None], tuple[int, PendingTurn]] = {}
        num_open = num_replies = 0

        def advance(session: int) -> None:
            """Ask for the next reply of an episode, or end it."""
            nonlocal num_open, num_replies
            play = plays[session]
            if self.prepare(play):
                self.engine.submit(self._request(session, play, plan))
                num_replies += 1
            else:
                self.engine.release(session)
                num_open -= 1
                on_episode(play.episode)

        def settle(session: int, turn: PendingTurn | None) -> None:
            if turn is not None:  # else the engine failed and the environment was not asked
                self.finish_turn(plays[session].episode, turn)
            advance(session)

        num_open = len(plays)
        for session in range(len(plays)):
            advance(session)
        while num_open:
            completions = self.engine.step() if num_replies else []
            num_replies -= len(completions)
            turns = {c.session: self.read_reply(plays[c.session], c) for c in completions}
            environments.play([turn for turn in turns.values() if turn is not None])
            for session, turn in turns.items():
                if turn is not None and turn.future is not None:
                    running[turn.future] = session, turn
                else:
                    settle(session, turn)
            if running:
                # With replies still being written only what is done is collected; else wait for an environment.
                done, _ = wait(running, timeout=0 if num_replies else POLL_S, return_when=FIRST_COMPLETED)
                for future in done:
                    session, turn = running.pop(future)
                    settle(session, turn)
        return [play.episode for play in plays]

    # The steps of one episode: `rollout` takes them for many at once, the page of `ragen view` one by one.

    def start(self, seat: Seat) -> Play:
        """The episode of a seat that stands on its level."""
        episode = Episode(
            tag=seat.tag,
            env_type=seat.spec.env_type,
            group_id=seat.group_id,
            member=seat.member,
            seed=seat.seed,
            level=seat.level,
        )
        if seat.status.is_fault:
            episode.status, episode.error = seat.status, seat.error
        else:
            episode.system = self.ctx.system(seat)
            episode.final_observation = seat.observation
        return Play(seat=seat, episode=episode)

    def prepare(self, play: Play) -> bool:
        """Build the next prompt; False when the episode is over, and then it has its final reward."""
        is_ready = self._next_prompt(play)
        if not is_ready and self.reward_function is not None:
            replace_reward(play.episode, self.reward_function, name=self.reward_name)
        return is_ready

    def _next_prompt(self, play: Play) -> bool:
        episode = play.episode
        if episode.status is Status.ONGOING and len(episode.turns) >= self.agent.max_turn:
            episode.status = Status.OUT_OF_TURNS
        if episode.status is not Status.ONGOING:
            return False
        prompt = self.ctx.next_prompt(play.seat, episode, play.context_ids)
        if len(prompt.context_ids) > self.ctx.max_prompt(play.seat):
            episode.status = Status.CONTEXT_FULL
            if not episode.turns:
                episode.error = self.ctx.no_room(play.seat, len(prompt.context_ids))
                play.seat.calls.report("first_prompt", f"level {episode.seed} is not played: {episode.error}")
            return False
        play.prompt = prompt
        return True

    def _request(self, session: int, play: Play, plan: RolloutPlan) -> Request:
        assert play.prompt is not None
        seat, turn = play.seat, len(play.episode.turns)
        stops = stop_strings(plan.params.stop_strings, has_tools=bool(seat.tools))
        return Request(
            session=session,
            prompt_ids=play.prompt.context_ids,
            messages=[to_user(message) for message in play.prompt.messages],
            params=replace(
                plan.params, max_tokens=min(plan.params.max_tokens, self.ctx.max_reply(seat)), stop_strings=stops
            ),
            seed=fixed_hash(plan.noise_seed, seat.seed, seat.group_id, seat.member, turn),
        )

    def read_reply(self, play: Play, completion: Completion) -> PendingTurn | None:
        """Record a reply as a new turn and return what it asks of the environment; None when the engine failed."""
        prompt, episode = play.prompt, play.episode
        assert prompt is not None
        if completion.stop_reason is StopReason.ERROR:
            episode.status, episode.error = Status.ENGINE_ERROR, completion.error
            return None
        text = self._text(completion, has_tools=bool(play.seat.tools))
        parsed: ParsedReply = parse_reply(
            text[:MAX_TEXT],
            enable_think=self.agent.enable_think,
            action_sep=self.agent.action_sep,
            max_actions=self.agent.max_actions_per_turn,
            special_strings=self.chat.special_strings if self.chat else (),
            known=play.seat.action_ids,
            is_lenient=self.agent.answer_parsing == "lenient",
            is_free_text=play.seat.is_free_text,
            has_tools=bool(play.seat.tools),
        )
        turn = Turn(
            user=prompt.user,
            role=prompt.role,
            observation=play.seat.observation,
            prompt_ids=prompt.turn_ids,
            response_ids=completion.token_ids,
            logprobs=completion.logprobs,
            # Rounded here already, so that a filter that reads them from a file decides the same. What an
            # engine knows in float32 NumPy rounds just as Python does, in a third of the time.
            entropies=np.round(completion.entropies, ENTROPY_DECIMALS).tolist(),
            text=text,
            stop_reason=completion.stop_reason.value,
            thought=parsed.thought,
            actions=parsed.actions,
            is_parsed=parsed.is_parsed,
            is_lenient_valid=parsed.is_lenient_valid,
            num_dropped_actions=parsed.num_cut,
            num_dropped_turns=prompt.num_dropped_turns,
        )
        play.context_ids = prompt.context_ids + completion.token_ids
        return PendingTurn(play.seat, turn)

    def _text(self, completion: Completion, *, has_tools: bool) -> str:
        if self.chat is not None:
            return self.chat.reply_text(completion.token_ids)
        text, prefix = completion.text or "", forced_prefix(self.agent.enable_think)
        # An endpoint that follows the instructions opens the block itself.
        opened = (prefix, TOOL_CALL[0]) if has_tools and not self.agent.enable_think else prefix
        return text if text.lstrip().startswith(opened) else prefix + text

    def finish_turn(self, episode: Episode, pending: PendingTurn) -> None:
        """Add the turn with what the environment did, and decide whether the episode continues."""
        episode.status, episode.error = pending.finish(), pending.seat.error
        pending.turn.penalty = self.format_penalty if pending.is_invalid else 0.0
        episode.turns.append(pending.turn)
        episode.final_observation = pending.seat.observation


def refuse_when_nothing_fits(episodes: Sequence[Episode]) -> None:
    """One level may be too long for the context; when all are, the configuration is wrong."""
    if episodes and all(episode.status is Status.CONTEXT_FULL and not episode.turns for episode in episodes):
        raise ConfigError(f"{episodes[0].error} No level of the rollout fits.")


if __name__ == "__main__":
    import sys

    from ragen.cli import main

    sys.exit(main(["eval", *sys.argv[1:]]))
