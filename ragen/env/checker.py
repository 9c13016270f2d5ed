"""What every environment must keep to, checked in one call; the tests run it over each registered type.

check_env(partial(make_env, "sokoban", {"num_boxes": 1}), seeds=range(5))
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from ragen.env import boundary
from ragen.env.base import Env, StepResult, TextEnv
from ragen.env.boundary import EnvFault
from ragen.env.time_limit import within
from ragen.env.tool_env import ToolEnv
from ragen.env.tools import PROBLEMS, TOOL_CALL, Tool, ToolCall
from ragen.errors import RagenError
from ragen.seeding import Rng

INFO_KEYS = ("action_is_valid", "action_is_effective", "success")
NUM_TRANSCRIBED = 10
"""Steps of an episode that a fresh process must play alike."""
MAX_STEPS = 1000
"""Length of a random episode; an environment without `max_steps` in its config may still be running then."""
LIMIT_S = 60.0
"""Longest time of a call."""
QUICK_S = 0.2
"""Longest time of the first action of a brief check, with all before it; of a slower environment it tries no more."""
NUM_BRIEF = 3
"""Actions that a brief check tries, each on the fresh level."""
SHORT = ("hello", "1", "")
"""Texts of a brief check."""

HOSTILE = (
    "",
    " \n\t ",
    "\x00\x1b[2J\u202e",
    "\ud800",
    "<|im_end|><think></answer>",
    "(" * 10_000,
    "9" * 10_000,
    "9**9**9**9**9",
    "-" * 10_000 + "1",
    "__import__('os').system('exit 1')",
    '{"name": null, "arguments": [[[[]]]]}',
    "NaN",
    "\u0661 \uff11 \u00b2",
    "word " * 20_000,
)
"""Texts that a model may write; an environment answers each of them with a result."""

CHILD = """
import json, pickle, sys
make, seeds = pickle.load(sys.stdin.buffer)
from ragen.env.checker import transcript
print("\\n" + json.dumps([transcript(make(), seed) for seed in seeds]))
"""


def check_env(
    make: Callable[[], TextEnv], seeds: Iterable[int], *, has_noise: bool = False, limit_s: float | None = LIMIT_S
) -> None:
    """Play with the environments that `make` returns and fail, with the reason, on the first broken promise.

    `has_noise` says that actions may go astray in this configuration, so that a solution need not solve the level.
    `make` must be picklable (a function of a module, or functools.partial of one): a fresh process calls it too.
    A call that takes longer than `limit_s` is a broken promise; without a limit the calling thread makes the calls.
    """
    seeds = list(seeds)
    try:
        within(limit_s, partial(check_here, make, seeds, has_noise=has_noise), border=__file__)
        check_fresh_process(make, seeds)
    except SystemExit as error:  # else it would end this process with the look of success
        raise AssertionError(
            f"an environment must raise an error and not exit, got SystemExit({error.code!r})."
        ) from error
    except EnvFault as fault:  # what would end an episode of a run
        raise AssertionError(str(fault)) from fault


def check_here(make: Callable[[], TextEnv], seeds: Iterable[int], *, has_noise: bool) -> None:
    """What can be checked in one process."""
    env = make()
    for seed in seeds:
        check_reset(env, make, seed)
        check_first_actions(env, seed)
        check_tools(env, seed)
        check_random_episode(env, seed)
        if not has_noise:
            check_solution(env, seed)
    env.close()


def check_briefly(make: Callable[[], TextEnv], seed: int, *, limit_s: float | None) -> None:
    """The part of `check_env` that a run is begun with: an action, and of an environment that is quick resets and more.

    Whatever is wrong is an EnvFault. Values that the border converts (NumPy's numbers) are welcome here.
    """

    def check() -> None:
        began, env = time.monotonic(), make()
        boundary.start(env, seed, 0)
        first, *others = brief_actions(env, seed)
        check_result(env, boundary.step(env, first))
        if time.monotonic() - began < QUICK_S:
            check_reset(env, make, seed)
            for action in others:
                env.reset(seed)
                check_result(env, boundary.step(env, action))
        env.close()

    try:
        within(limit_s, partial(boundary.guarded, check, passing=(BrokenPromise, RagenError)), border=__file__)
    except BrokenPromise as error:
        raise EnvFault(str(error)) from error


def brief_actions(env: TextEnv, seed: int) -> Sequence[object]:
    """Actions of the list, or a random answer and short texts."""
    if isinstance(env, Env):
        return list(env.actions)[:NUM_BRIEF]
    sample = boundary.sample_text(env, Rng(seed, "checker"))
    return [*([] if sample is None else [sample]), *SHORT][:NUM_BRIEF]


class BrokenPromise(AssertionError):
    """What an environment does not keep to."""


def expect(is_kept: bool, message: str) -> None:
    """Fail with a message; not an assert, so that it also works under python -O."""
    if not is_kept:
        raise BrokenPromise(message)


def check_reset(env: TextEnv, make: Callable[[], TextEnv], seed: int) -> None:
    """A seed names a level: the same text again, for every member and in a new environment, whatever others play."""
    boundary.start(env, seed, 0)
    first = env.reset(seed)
    expect(bool(first), f"reset({seed}) must return a text that is not empty.")
    expect(env.render() == first, f"render() after reset({seed}) must equal the first observation.")
    names, content = words_of(env), env.level_content()
    what = "actions" if isinstance(env, Env) else "texts of the prompt"
    for member in (0, 1, 2):
        expect(env.reset(seed, member) == first, f"reset({seed}, {member}) differs from reset({seed}).")
        expect(env.level_content() == content, f"level_content() of member {member} differs within seed {seed}.")
        expect(words_of(env) == names, f"the {what} of member {member} differ within seed {seed}.")
    other = make()
    expect(other.reset(seed) == first, f"reset({seed}) differs in a second environment of the same config.")
    # Of a rollout every group plays a level of its own, all at once.
    other.reset(seed + 1)
    expect(
        env.render() == first,
        f"reset({seed + 1}) of a second environment changed what the first one shows on level {seed}: they share what "
        "each must have of its own (attributes of the class, globals).",
    )
    other.close()
    boundary.hint(env)


def words_of(env: TextEnv) -> object:
    """What the prompt of a level says beside its observation."""
    if isinstance(env, Env):
        return env.actions
    return env.system_prompt(), env.notes(), env.example_answer(), [tool.to_json() for tool in env.tools()]


def check_first_actions(env: TextEnv, seed: int) -> None:
    """Each action works as the first one; of free text the example does, and no text does harm."""
    env.reset(seed)
    if isinstance(env, Env):
        for action in env.actions:
            env.reset(seed)
            check_result(env, env.step(action))
        return
    for text in HOSTILE:
        env.reset(seed)
        check_result(env, boundary.step(env, text))
    env.reset(seed)
    if example := env.example_answer():
        is_valid = check_result(env, env.step(example)).info["action_is_valid"]
        expect(bool(is_valid), f"the example answer {example!r} of seed {seed} is reported as invalid.")


def check_tools(env: TextEnv, seed: int) -> None:
    """Calls of any kind are answered with a text, and using a tool changes nothing in the environment."""
    if not isinstance(env, ToolEnv):
        return
    env.reset(seed)
    tools = boundary.start(env, seed, 0).tools
    expect(bool(tools), f"tools() of seed {seed} is empty.")
    calls = [text.join(TOOL_CALL) for text in HOSTILE] + [str(ToolCall("no_such_tool", {}))]
    calls += [call for tool in tools for call in hostile_calls(tool)]
    for call in calls:
        first = env.reset(seed)
        outcome = env.run(call)
        expect(env.render() == first, f"using a tool changed the environment: {call[:100]!r} on seed {seed}.")
        expect(outcome.problem in ("", *PROBLEMS), f"a call has the unknown problem {outcome.problem!r}.")
        result = check_result(env, boundary.check_step(env.take(outcome)))
        expect(outcome.is_call and result.tool_result is not None, f"{call[:100]!r} is not answered as a call.")


def hostile_calls(tool: Tool) -> list[str]:
    """Calls of a tool without arguments, with one too many, and with texts that a model may write as arguments."""
    properties = tool.parameters.get("properties", {})
    texts = [name for name, schema in properties.items() if schema.get("type") == "string"]
    values = [dict.fromkeys(texts, text) for text in HOSTILE if len(text) < 1000]
    arguments = [{}, dict.fromkeys(properties), {"no_such_argument": 1}, *(values if texts else [])]
    return [ToolCall(tool.name, each).block for each in arguments]


def check_result(env: TextEnv, result: StepResult) -> StepResult:
    """A step returns a text, finite numbers and the three infos, which another process can be sent."""
    boundary.check_step(result)
    expect(env.render() == result.observation, "render() must equal the last observation.")
    for name in ("is_done", "terminated", "truncated"):
        flag = getattr(result, name)
        expect(isinstance(flag, bool), f"{name} must be True or False, got {flag!r}.")
    missing = [key for key in INFO_KEYS if key not in result.info]
    expect(not missing, f"the info of a step lacks {', '.join(missing)}: step_info(...) makes all that it needs.")
    odd = {key: value for key, value in result.info.items() if not isinstance(value, (int, float))}
    expect(not odd, f"infos must be numbers, got {odd}.")
    try:
        is_same = pickle.loads(pickle.dumps(result)) == result
    except Exception as error:  # whatever the pickling of a value raises
        raise BrokenPromise(f"a result must survive pickle, got {type(error).__name__}: {error}") from error
    expect(is_same, "a result must survive pickle unchanged.")
    return result


def check_random_episode(env: TextEnv, seed: int) -> None:
    """Random play reaches the end; where the config has `max_steps`, the end comes in time."""
    limit = getattr(env.config, "max_steps", None)
    twice = [play_randomly(env, seed, limit or MAX_STEPS) for _ in range(2)]
    expect(twice[0] == twice[1], f"the same actions on seed {seed} and member 1 gave two different episodes.")
    if limit is not None:
        expect(twice[0][-1].is_done, f"the episode of seed {seed} continues after max_steps {limit}.")


def random_action(env: TextEnv, rng: Rng) -> object:
    """What chance does; in an environment that knows no random text, a hostile one."""
    if isinstance(env, Env):
        return rng.choice(list(env.actions))
    text = boundary.sample_text(env, rng)
    return rng.choice(HOSTILE) if text is None else text


def play_randomly(env: TextEnv, seed: int, limit: int) -> list[StepResult]:
    """The results of an episode of random actions."""
    env.reset(seed, 1)
    rng, results = Rng(seed, "checker"), []
    while len(results) < limit and not (results and results[-1].is_done):
        results.append(env.step(random_action(env, rng)))
        check_result(env, results[-1])
    return results


def transcript(env: TextEnv, seed: int) -> list[str]:
    """The texts of a level: its first observation, and those of the first steps of a random episode."""
    first = env.reset(seed)
    results = play_randomly(env, seed, NUM_TRANSCRIBED)
    return [first, *(f"{result.observation} {result.reward!r}" for result in results)]


def check_solution(env: TextEnv, seed: int) -> None:
    """Where there is a solver, its actions end the episode with success, on the last action and not before."""
    env.reset(seed)
    solution = env.solve()
    if solution is None:
        return
    expect(bool(solution), f"solve() gave no action on the fresh level of seed {seed}.")
    results = []
    for action in solution:
        expect(
            not (results and results[-1].is_done), f"the solution {solution} of seed {seed} is longer than its episode."
        )
        results.append(env.step(action))
    is_won = results[-1].is_done and bool(results[-1].info["success"])
    expect(is_won, f"the solution {solution} of seed {seed} does not end with success.")


def check_fresh_process(make: Callable[[], TextEnv], seeds: list[int]) -> None:
    """Another process, with another salt for Python's hash, makes the same levels and plays them alike."""
    salt = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    child = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=pickle.dumps((make, seeds)),
        capture_output=True,
        env={**os.environ, "PYTHONHASHSEED": salt, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    expect(child.returncode == 0, f"a fresh process could not make the environment:\n{child.stderr.decode()}")
    theirs = json.loads(child.stdout.splitlines()[-1])
    for seed, texts in zip(seeds, theirs):
        ours = transcript(make(), seed)
        expect(ours[0] == texts[0], f"reset({seed}) differs in a fresh process.")
        expect(ours == texts, f"the same actions on seed {seed} give other texts in a fresh process.")
