"""The solver, the random policy and silence as players: they go through the same prompts and tokens as a model."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from ragen.config.schema import Config
from ragen.engine.base import Request
from ragen.engine.scripted import ScriptedEngine
from ragen.llm_agent.agent_proxy import RolloutPlan
from ragen.llm_agent.build import build_proxy, sampling_params
from ragen.llm_agent.chat import Chat
from ragen.llm_agent.es_manager import EsManager, Seat, levels_from
from ragen.seeding import Rng
from ragen.types import Episode

STUCK = "No way is left."
"""The thought in a state that cannot be solved any more; it is true there, too."""
Reply = Callable[[Request], str]


class OutOfTime(Exception):
    """A rollout was given up because its time is over."""


def silence(request: Request) -> str:
    """The reply of an agent that never names an action: invalid in every environment."""
    return ""


def until(deadline: float, reply: Reply) -> Reply:
    """The same replies; asking for one after `deadline`, in seconds of time.monotonic(), raises OutOfTime."""

    def timed(request: Request) -> str:
        if time.monotonic() > deadline:
            raise OutOfTime
        return reply(request)

    return timed


def scripted_policy(
    config: Config, environments: EsManager, *, noise: float, seed: int, tags: Collection[str] | None = None
) -> Reply:
    """A reply function for ScriptedEngine that plays the seats of `environments`, all or those of some tags.

    Its replies have the required form, behind the forced prefix: a true thought, then actions. With probability `noise`
    the actions are random, else the first ones of a shortest solution.
    """
    agent = config.agent_proxy
    seats = seats_of(environments, tags)

    def reply(request: Request) -> str:
        seat, rng = seats[request.session], Rng(seed, "teacher", request.seed)
        num_actions = 1 if seat.is_free_text else min(agent.max_actions_per_turn, seat.num_actions_left)
        # The random policy needs no plan: a solver may search for a while.
        plan = seat.plan() if noise < 1 else [""]
        actions = plan[:num_actions] if plan and rng.random() >= noise else seat.sample(rng, num_actions)
        answer = f" {agent.action_sep} ".join(actions) + "</answer>"
        if not agent.enable_think:
            return answer
        call = seat.call_of(actions[0]) if actions else None
        return f"{seat.hint() or STUCK}</think>{call.block if call else f'<answer>{answer}'}"

    return reply


def play_policy(
    config: Config,
    environments: EsManager,
    *,
    noise: float,
    base_seed: int,
    seed: int = 0,
    chat: Chat | None = None,
    tags: Collection[str] | None = None,
) -> list[Episode]:
    """Episodes of the solver (noise 0), the random policy (noise 1) or anything between.

    With a chat the replies are recorded as token ids, as if a model had sampled them. `tags`: play these alone.
    """
    reply = scripted_policy(config, environments, noise=noise, seed=seed, tags=tags)
    return play_replies(config, environments, reply, base_seed=base_seed, seed=seed, chat=chat, tags=tags)


def play_replies(
    config: Config,
    environments: EsManager,
    reply: Reply,
    *,
    base_seed: int,
    seed: int = 0,
    chat: Chat | None = None,
    tags: Collection[str] | None = None,
) -> list[Episode]:
    """Episodes of whoever writes the replies, of all tags or of some."""
    engine = ScriptedEngine(reply, chat.tokenizer if chat else None)
    proxy = build_proxy(config, engine, chat)
    params = sampling_params(config, chat, is_validation=False)
    played = {seat.group_id for seat in seats_of(environments, tags)}
    levels = levels_from(base_seed, environments.num_groups)
    chosen = [level if group in played else None for group, level in enumerate(levels)]
    return proxy.rollout(environments, RolloutPlan(levels=chosen, noise_seed=seed, params=params))


def seats_of(environments: EsManager, tags: Collection[str] | None) -> list[Seat]:
    """The seats of some tags, or all of them; a rollout of these numbers its sessions in their order."""
    return [seat for seat in environments.seats if tags is None or seat.tag in tags]


def why_no_random(environments: EsManager, tag: str) -> str:
    """Why chance cannot play a tag, asked on the level of its first seat; empty where it can."""
    seat = _asked_seat(environments, tag)
    if seat.error or seat.sample(Rng(0, "random"), 1):
        return ""
    if seat.calls.has_reported("sample_text"):
        return "its sample_text failed"
    return "its environment offers no random answer (sample_text)"


def has_random(environments: EsManager, tag: str) -> bool:
    """Whether chance can play a tag: an environment of free text must offer a random answer."""
    return not why_no_random(environments, tag)


def has_solver(environments: EsManager, tag: str) -> bool:
    """Whether the environments of a tag know a solution, asked on the level of its first seat."""
    seat = _asked_seat(environments, tag)
    return not seat.error and seat.solve() is not None


CAN_PLAY = {"random": has_random, "solver": has_solver}
"""Reference policy -> whether it can play a tag."""


def _asked_seat(environments: EsManager, tag: str) -> Seat:
    seat = next(seat for seat in environments.seats if seat.tag == tag)
    seat.reset(seat.seed)
    return seat
