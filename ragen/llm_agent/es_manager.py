"""Environment states: which environments a rollout plays, on which levels, and what a turn does to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any

from ragen.config.schema import EnvSetConfig, EnvTag
from ragen.env import StepResult, TextEnv, boundary
from ragen.env.boundary import MAX_NAME, MAX_REWARD, EnvFault, EpisodeStart
from ragen.env.tool_env import ToolEnv
from ragen.env.tools import CallError, Tool, ToolCall, read_call
from ragen.llm_agent.env_calls import Fault, TagCalls, make_envs, result_of
from ragen.llm_agent.env_threads import Clock, EnvTimeout, Work
from ragen.seeding import Rng
from ragen.text import shorten
from ragen.types import Status, Turn

Move = tuple[str, Any]
"""What stood in the answer, and what `step` is given for it."""


@dataclass(kw_only=True, slots=True)
class Seat:
    """One environment of a rollout and how far its episode is."""

    tag: str
    spec: EnvTag
    calls: TagCalls
    env: TextEnv | None
    """None where it could not be made, or was given up because it hung: the next episode begins with a new one."""
    group_id: int
    member: int
    seed: int = 0
    level: str = ""
    """Hash of the level's content, empty where it could not be made."""
    observation: str = ""
    num_actions: int = 0
    """Actions executed in this episode."""
    reward: float = 0.0
    """Sum of the rewards of this episode."""
    actions: dict[Any, str] | None = field(default_factory=dict)
    """Action id -> name, for the current level; None where any text is an answer."""
    action_ids: dict[str, Any] = field(default_factory=dict)
    """Lower-case action name -> id, for the current level."""
    notes: str = ""
    """What the environment adds to the system message, for the current level."""
    system_prompt: str = ""
    """The environment's own system message, empty where it has none."""
    example: str = ""
    """The environment's own example answer, empty where it has none."""
    tools: tuple[Tool, ...] = ()
    """What a reply may call, for the current level."""
    tool_result: str | None = None
    """What the call of the last turn returned; None where it called no tool."""
    max_tokens: int = 0
    """Length of a reply as told to the model: the tag's, or else the environment's own."""
    status: Status = Status.ONGOING
    """A fault once the environment failed."""
    error: str = ""
    """Why it failed."""

    @property
    def is_free_text(self) -> bool:
        """An answer is one action, whatever its text."""
        return self.actions is None

    def moves(self, names: Sequence[str]) -> list[Move]:
        """What an answer makes the environment do: the actions of its list by their ids, or the text itself."""
        if self.is_free_text:
            return [(str(self.call_of(name) or name), name) for name in names]
        return [(name, self.action_ids[name.lower()]) for name in names if name.lower() in self.action_ids]

    def call_of(self, text: str) -> ToolCall | None:
        """The call of a tool that an answer makes; None where it makes none, or none that can be made."""
        try:
            return read_call(text, self.tools) if self.tools else None
        except CallError:
            return None

    @property
    def num_actions_left(self) -> int:
        return self.spec.max_actions_per_traj - self.num_actions

    def reset(self, seed: int) -> None:
        """Start a new episode on the level of `seed`."""
        [started] = self.calls.run([self.starting(seed)])
        self.begin(seed, started)

    def starting(self, seed: int) -> Work[tuple[TextEnv, EpisodeStart]]:
        """The calls that start an episode, in an environment that is made where there is none."""
        old_env, spec, member = self.env, self.spec, self.member

        def work(clock: Clock) -> tuple[TextEnv, EpisodeStart]:
            clock.start("making the environment")
            env = old_env or boundary.make(spec.env_type, spec.env_config)
            clock.start("reset")
            return env, boundary.start(env, seed, member)

        return work

    def begin(self, seed: int, started: tuple[TextEnv, EpisodeStart] | Fault) -> None:
        """Take over what `starting` brought."""
        self.seed, self.num_actions, self.reward, self.observation = seed, 0, 0.0, ""
        self.status, self.error, self.level = Status.ONGOING, "", ""
        self.tool_result = None
        if isinstance(started, Exception):
            self.fail(started)
            return
        self.env, level = started
        self.observation, self.actions, self.notes = level.observation, level.actions, level.notes
        self.action_ids = {name.strip().lower(): action for action, name in (level.actions or {}).items()}
        self.system_prompt, self.example, self.tools = level.system_prompt, level.example, level.tools
        self.max_tokens = self.spec.max_tokens or level.max_tokens or 0
        self.level = level_hash(self.spec.env_type, level.content or level.observation)

    def fail(self, fault: Fault) -> None:
        """The environment ends its own episode; the others continue."""
        self.error = self.calls.describe(fault)
        where = f"level {self.seed}, member {self.member}"
        if isinstance(fault, EnvTimeout):
            self.status, self.env = Status.ENV_TIMEOUT, None
            self.calls.report("hung", f"{where}: {self.error}. It is given up, the next episode gets a new environment")
        else:
            self.status = Status.ENV_ERROR
            self.calls.report("error", f"an environment failed ({where}): {self.error}", getattr(fault, "trace", ""))

    def sample(self, rng: Rng, count: int) -> list[str]:
        """Random actions for one answer; empty where the environment knows no random text."""
        if self.actions is not None:
            return [self.actions[rng.choice(list(self.actions))] for _ in range(count)]
        text = self._ask("sample_text", partial(boundary.sample_text, rng=rng))
        return [] if text is None else [text]

    def plan(self) -> list[str] | None:
        """A shortest solution from the current state as an answer spells it; None where there is none."""
        plan = self.solve()
        return None if plan is None else self.spell(plan)

    def spell(self, actions: Sequence[Any]) -> list[str]:
        """Actions that `step` takes, as an answer names them."""
        return list(actions) if self.actions is None else [self.actions[action] for action in actions]

    def solve(self) -> list[Any] | None:
        """Action ids, or texts, of a shortest solution from the current state; None where there is none."""
        return self._ask("solve", boundary.solve)

    def hint(self) -> str:
        """A short true sentence about the current state, empty where there is none."""
        return self._ask("hint", boundary.hint) or ""

    def _ask(self, name: str, question: Any) -> Any:
        env = self.env
        if env is None:
            return None

        def work(clock: Clock) -> Any:
            clock.start(name, is_limited=False)  # a solver may search for a while
            return question(env)

        [found] = self.calls.run([work])
        if isinstance(found, Exception):
            self.calls.report(name, f"{name} failed: {found}", getattr(found, "trace", ""))
            return None
        return found


class PendingTurn:
    """A turn whose actions an environment executes: the known ones, until the budget or the episode ends."""

    def __init__(self, seat: Seat, turn: Turn) -> None:
        self.seat, self.turn = seat, turn
        self.known = seat.moves(turn.actions)
        self.is_invalid = len(self.known) < max(1, len(turn.actions))
        """An action was unknown, none was left to execute, or the environment cannot use the text."""
        self.todo = self.known[: seat.num_actions_left]
        self.results: list[StepResult] = []
        self.fault: Fault | None = None
        self.in_tool: list[str] = []
        """The action whose tool is at work."""
        self.future: Future[None] | None = None
        """Where several threads play the tag: done when the turn is."""

    def work(self) -> Work[None]:
        """The steps, for the thread that makes them."""
        # The thread that runs this may be given up at any time: it reads nothing that changes and appends results.
        env, todo, results, total = self.seat.env, self.todo, self.results, self.seat.reward
        in_tool = self.in_tool
        assert env is not None, "an episode without an environment has ended"

        def work(clock: Clock) -> None:
            reward = total
            for name, action in todo:
                clock.start(f"step({shorten(name, MAX_NAME)})")
                if isinstance(env, ToolEnv):
                    in_tool.append(action)
                    outcome = boundary.guarded(env.run, action)
                    if clock.is_given_up:  # `finish` finds the action in `in_tool` and continues the episode
                        return
                    in_tool.clear()
                    if clock.is_given_up:  # it may have looked before the line above: then the episode is its own
                        return
                    clock.start(f"taking in {shorten(name, MAX_NAME)}")
                    result = boundary.check_step(boundary.guarded(env.take, outcome))
                else:
                    result = boundary.step(env, action)
                if clock.is_given_up:
                    return
                reward += result.reward
                if abs(reward) > MAX_REWARD:
                    raise EnvFault(f"the rewards of the episode sum to {reward:g}; expected at most {MAX_REWARD:g}.")
                results.append(result)
                if result.is_done:
                    return

        return work

    def finish(self) -> Status:
        """Record in the turn what its actions did, once they are done; returns how the episode stands."""
        seat, turn = self.seat, self.turn
        if self.future is not None:
            self.fault = result_of(self.future)
        if isinstance(self.fault, EnvTimeout) and self.in_tool and isinstance(seat.env, ToolEnv):
            self.fault = self._give_up_tool(seat.env, self.in_tool[0])
        if self.fault is not None:
            seat.fail(self.fault)
        for (name, _), result in zip(self.todo, list(self.results)):
            seat.num_actions += 1
            seat.reward += result.reward
            seat.observation = result.observation
            turn.executed.append(name)
            turn.reward += result.reward
            turn.info |= result.info
            turn.tool_result, turn.tool_problem = result.tool_result, result.tool_problem
        seat.tool_result = turn.tool_result
        if seat.status.is_fault:
            return seat.status
        if seat.is_free_text and not turn.info.get("action_is_valid", 1.0):
            self.is_invalid, turn.is_lenient_valid = True, False
        turn.info["manager_invalid_action"] = float(self.is_invalid)
        turn.num_dropped_actions += len(self.known) - len(turn.executed)
        if self.results and self.results[-1].is_done:
            if turn.info.get("success"):
                return Status.SOLVED
            return Status.FAILED if self.results[-1].terminated else Status.TRUNCATED
        return Status.OUT_OF_ACTIONS if seat.num_actions_left <= 0 else Status.ONGOING

    def _give_up_tool(self, env: ToolEnv, action: str) -> Fault | None:
        """A tool hangs: the model is told so, and the episode continues. A tool changes nothing in its environment."""
        calls, limit_s = self.seat.calls, self.seat.spec.step_timeout or 0.0

        def work(clock: Clock) -> None:
            clock.start("taking in a call that took too long")
            outcome = boundary.guarded(env.timed_out, action, limit_s)
            self.results.append(boundary.check_step(boundary.guarded(env.take, outcome)))

        calls.report("tool", f"a tool hung (level {self.seat.seed}): {self.fault}. The model is told so")
        [fault] = calls.run([work])
        return fault


def play_in_order(turns: Sequence[PendingTurn]) -> None:
    """Do turns of one tag one after the other and wait for the end."""
    turns = [turn for turn in turns if turn.todo]
    if turns:
        faults = turns[0].seat.calls.run([turn.work() for turn in turns])
        for turn, fault in zip(turns, faults, strict=True):
            turn.fault = fault


def level_hash(env_type: str, content: str) -> str:
    """The identity of a level by its content, the same on every machine; long contents cost no time."""
    data = f"{env_type}\n{content}".encode("utf-8", "surrogatepass")  # an environment may return any text
    return blake2b(data, digest_size=8).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupLevel:
    """What one group of a rollout plays."""

    seed: int
    """Names the level."""
    visit: int = 0
    """How often training has played the level before. Each visit meets chance of its own: members are counted on."""


def levels_from(base_seed: int, num_groups: int) -> list[GroupLevel]:
    """A level for each group: the first has `base_seed`, each further one the next."""
    return [GroupLevel(seed=base_seed + group) for group in range(num_groups)]


class EsManager:
    """The seats of one kind of rollout (train, val or analysis)."""

    def __init__(self, env_set: EnvSetConfig, custom_envs: Mapping[str, EnvTag]) -> None:
        self.group_size = env_set.group_size
        self.num_groups = env_set.env_groups
        self.seats: list[Seat] = []
        self._calls: dict[str, TagCalls] = {}
        for tag, num_groups in zip(env_set.env_configs.tags, env_set.env_configs.n_groups, strict=True):
            spec = custom_envs[tag]
            calls = self._calls.setdefault(tag, TagCalls(tag, spec))
            for env in make_envs(calls, num_groups * self.group_size):
                group_id, member = divmod(len(self.seats), self.group_size)
                self.seats.append(Seat(tag=tag, spec=spec, calls=calls, env=env, group_id=group_id, member=member))

    @property
    def env_types(self) -> list[str]:
        return sorted({seat.spec.env_type for seat in self.seats})

    @property
    def tags(self) -> list[str]:
        """Those that have a seat, in order."""
        return list(dict.fromkeys(seat.tag for seat in self.seats))

    def reset(self, levels: Sequence[GroupLevel | None]) -> list[Seat]:
        """Put the environments on the levels of their groups and return the seats; those of a group without a level
        are left out."""
        playing: list[tuple[Seat, int]] = []
        works: dict[TagCalls, list[Work[tuple[TextEnv, EpisodeStart]]]] = {calls: [] for calls in self._calls.values()}
        for seat in self.seats:
            if (level := levels[seat.group_id]) is not None:
                seat.member = level.visit * self.group_size + seat.member % self.group_size
                playing.append((seat, level.seed))
                works[seat.calls].append(seat.starting(level.seed))
        # Tags with several threads first: they work while the others are waited for.
        futures = {calls: [calls.submit(work) for work in works[calls]] for calls in works if calls.is_parallel}
        started = {calls: iter(calls.run(works[calls])) for calls in works if not calls.is_parallel}
        started |= {calls: map(result_of, found) for calls, found in futures.items()}
        for seat, seed in playing:
            seat.begin(seed, next(started[seat.calls]))
        return [seat for seat, _ in playing]

    def play(self, turns: Sequence[PendingTurn]) -> None:
        """Do turns; of a tag with several threads they are under way when this returns, and have a `future`."""
        for turn in turns:
            if turn.seat.calls.is_parallel and turn.todo:
                turn.future = turn.seat.calls.submit(turn.work())
        for calls in self._calls.values():
            if not calls.is_parallel:
                play_in_order([turn for turn in turns if turn.seat.calls is calls])

    def close(self) -> None:
        for calls in self._calls.values():
            calls.close([seat.env for seat in self.seats if seat.calls is calls and seat.env is not None])
        for seat in self.seats:
            seat.env = None
