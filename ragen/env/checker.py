"""What every environment must keep to, checked in one call; the tests run it over each registered type.

check_env(partial(make_env, "sokoban", {"num_boxes": 1}), seeds=range(5))
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable

from ragen.env import boundary
from ragen.env.base import Env, StepResult
from ragen.env.boundary import EnvFault
from ragen.seeding import Rng

INFO_KEYS = ("action_is_valid", "action_is_effective", "success")
MAX_STEPS = 1000
"""Length of a random episode; an environment without `max_steps` in its config may still be running then."""

CHILD = """
import json, pickle, sys
make, seeds = pickle.load(sys.stdin.buffer)
env = make()
print(json.dumps([env.reset(seed) for seed in seeds]))
"""


def check_env(make: Callable[[], Env], seeds: Iterable[int], *, has_noise: bool = False) -> None:
    """Play with the environments that `make` returns and fail, with the reason, on the first broken promise.

    `has_noise` says that actions may go astray in this configuration, so that a solution need not solve the level.
    `make` must be picklable (a function of a module, or functools.partial of one): a fresh process calls it too.
    """
    seeds = list(seeds)
    try:
        env = make()
        for seed in seeds:
            check_reset(env, make, seed)
            check_every_action(env, seed)
            check_random_episode(env, seed)
            if not has_noise:
                check_solution(env, seed)
        check_fresh_process(env, make, seeds)
        env.close()
    except SystemExit as error:  # else it would end this process with the look of success
        raise AssertionError(
            f"an environment must raise an error and not exit, got SystemExit({error.code!r})."
        ) from error
    except EnvFault as fault:  # what would end an episode of a run
        raise AssertionError(str(fault)) from fault


def expect(is_kept: bool, message: str) -> None:
    """Fail with a message; not an assert, so that it also works under python -O."""
    if not is_kept:
        raise AssertionError(message)


def check_reset(env: Env, make: Callable[[], Env], seed: int) -> None:
    """A seed names a level: the same text again, for every member and in a new environment."""
    boundary.start(env, seed, 0)
    first = env.reset(seed)
    expect(bool(first), f"reset({seed}) must return a text that is not empty.")
    expect(env.render() == first, f"render() after reset({seed}) must equal the first observation.")
    names, content = env.actions, env.level_content()
    for member in (0, 1, 2):
        expect(env.reset(seed, member) == first, f"reset({seed}, {member}) differs from reset({seed}).")
        expect(env.level_content() == content, f"level_content() of member {member} differs within seed {seed}.")
        expect(env.actions == names, f"the actions of member {member} differ within seed {seed}.")
    other = make()
    expect(other.reset(seed) == first, f"reset({seed}) differs in a second environment of the same config.")
    other.close()
    boundary.hint(env)


def check_every_action(env: Env, seed: int) -> None:
    """Each action works as the first one."""
    env.reset(seed)
    for action in env.actions:
        env.reset(seed)
        check_result(env, env.step(action))


def check_result(env: Env, result: StepResult) -> None:
    """A step returns a text, finite numbers and the three infos."""
    boundary.check_step(result)
    expect(env.render() == result.observation, "render() must equal the last observation.")
    expect(isinstance(result.is_done, bool), f"is_done must be True or False, got {result.is_done!r}.")
    missing = [key for key in INFO_KEYS if key not in result.info]
    expect(not missing, f"info lacks {', '.join(missing)}.")
    odd = {key: value for key, value in result.info.items() if not isinstance(value, (int, float))}
    expect(not odd, f"infos must be numbers, got {odd}.")


def check_random_episode(env: Env, seed: int) -> None:
    """Random play reaches the end; where the config has `max_steps`, the end comes in time."""
    limit = getattr(env.config, "max_steps", None)
    twice = [play_randomly(env, seed, limit or MAX_STEPS) for _ in range(2)]
    expect(twice[0] == twice[1], f"the same actions on seed {seed} and member 1 gave two different episodes.")
    if limit is not None:
        expect(twice[0][-1].is_done, f"the episode of seed {seed} continues after max_steps {limit}.")


def play_randomly(env: Env, seed: int, limit: int) -> list[StepResult]:
    """The results of an episode of random actions."""
    env.reset(seed, 1)
    rng, results = Rng(seed, "checker"), []
    while len(results) < limit and not (results and results[-1].is_done):
        results.append(env.step(rng.choice(list(env.actions))))
        check_result(env, results[-1])
    return results


def check_solution(env: Env, seed: int) -> None:
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


def check_fresh_process(env: Env, make: Callable[[], Env], seeds: list[int]) -> None:
    """Another process, with another salt for Python's hash, makes the same levels."""
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
    for seed, text in zip(seeds, theirs):
        expect(env.reset(seed) == text, f"reset({seed}) differs in a fresh process.")
