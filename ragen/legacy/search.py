"""`bash scripts/hyperparam_search.sh`: search one group of hyper-parameters, keep the best, build the next on it.

Runs are legacy commands on the sweep scheduler. Scores and ends are read from run directories; a search that was
killed and is started again leaves out the runs that have ended.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ragen.config import load_config
from ragen.config.arguments import num_seeds
from ragen.config.seeds import repeat_seed
from ragen.errors import ConfigError, reporting_errors
from ragen.files import read_object
from ragen.legacy.best import BEST, Candidate, Params, store_best
from ragen.legacy.settings import check_env, read_settings
from ragen.legacy.translate import translate
from ragen.sweeps.driving.driver import drive
from ragen.sweeps.driving.run import Run, shell_line
from ragen.sweeps.driving.slots import Slot, cut_slots, find_machine
from ragen.tracking.machine import query_gpus

DEFAULT_MODEL = "Qwen/Qwen2.5-3B-Instruct"
GROUPS: dict[int, dict[str, tuple[str, ...]]] = {
    1: {"train_batch_size": ("4", "8", "16"), "n_rollout": ("4", "8", "16")},
    2: {"actor_lr": ("5e-7", "1e-6", "5e-6", "1e-5")},
    3: {"kl_coef": ("0.001", "0.005", "0.01", "0.04", "0.1", "0.5")},
    4: {"max_turns": ("2", "5", "8"), "temperature": ("0.1", "0.5", "1")},
}
"""Group -> what it searches."""
DEFAULTS = {
    "train_batch_size": "8",
    "n_rollout": "16",
    "actor_lr": "1e-6",
    "kl_coef": "0.04",
    "max_turns": "5",
    "temperature": "1.0",
}
"""Values of what has not been searched."""
OPTIMIZATION = ("actor_lr", "kl_coef")
FIXED = (
    "optimization.adv_estimator=grpo",
    "training.train_data_num=500",
    "training.val_data_num=50",
    "training.total_epochs=1",
    "trainer.save_freq=-1",  # what counts is the score; a checkpoint of every run would fill a disk
)
LOGS = Path("log/terminal")
RUN_LOGS = LOGS / "hyper_param_search_logs"
MAX_MEMORY_USED = 0.5
"""A GPU with more of its memory taken belongs to somebody else."""

PROGRAM = "bash scripts/hyperparam_search.sh"


def main(argv: Sequence[str] | None = None, *, prog: str = PROGRAM) -> int:
    argv = list(sys.argv[1:] if argv is None else argv)
    args = parser(prog).parse_intermixed_args(argv)
    return reporting_errors(lambda: search(args, [*prog.split(), *argv]), outlives_reader=not args.dry_run)


def parser(prog: str = PROGRAM) -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog=prog, description=__doc__, epilog="docs/legacy.md", allow_abbrev=False)
    found.add_argument("--env_name", required=True, help="two_armed_bandit, sokoban or frozenlake")
    found.add_argument("--exp_base_name", default="hyperparam_searching", help="begins every run's name (%(default)s)")
    found.add_argument("--search_group", type=int, choices=GROUPS, required=True, help="what is searched")
    found.add_argument("--base_model", default=DEFAULT_MODEL, help="the model (%(default)s)")
    found.add_argument("--parallel", action="store_true", help="one run on every n_gpus GPUs, side by side")
    found.add_argument("--n_gpus", type=int, default=1, help="GPUs of one run (%(default)s)")
    found.add_argument("--micro_batch_size", type=int, default=2, help="episodes per pass, over its GPUs (%(default)s)")
    found.add_argument("--seeds", type=num_seeds, default=1, help="run every setting with N seeds (%(default)s)")
    found.add_argument("--dry_run", action="store_true", help="print the commands; nothing is run or stored")
    for name in (*DEFAULTS, "ppo_batch_size"):
        found.add_argument(f"--{name}", metavar="VALUE", help=f"fixed value of {legacy_key(name)}")
    found.add_argument("overrides", nargs="*", metavar="key=value", help="further legacy keys for every run")
    return found


def legacy_key(name: str) -> str:
    """actor_lr -> optimization.actor_lr"""
    return f"{'optimization' if name in OPTIMIZATION else 'training'}.{name}"


def search(args: argparse.Namespace, words: Sequence[str]) -> int:
    """Plan, run what has not been run, and store the best setting."""
    check_env(args.env_name)
    if not 1 <= args.n_gpus <= args.micro_batch_size:
        raise ConfigError(
            f"--micro_batch_size is {args.micro_batch_size}, --n_gpus is {args.n_gpus}. "
            "Every GPU needs an episode: make micro_batch_size at least n_gpus, and n_gpus at least 1."
        )
    slots = find_slots(args)
    candidates = plan(args)
    outcomes = drive(
        [candidate.run for candidate in candidates],
        slots,
        title=f"Search group {args.search_group}, {args.env_name}",
        header=[f"=== {shell_line(words)} ==="],
        summary=LOGS / f"hyperparam_search_{args.exp_base_name}_{time.strftime('%Y%m%d_%H%M%S')}.log",
        is_dry=args.dry_run,
    )
    if outcomes is None:
        return 0
    facts = {"env_name": args.env_name, "base_model": args.base_model}
    return store_best(args.search_group, candidates, outcomes, facts=facts)


# --- the plan


def plan(args: argparse.Namespace) -> list[Candidate]:
    """Every combination of the group's values with every seed; all combinations of the first seed come first."""
    grid = GROUPS[args.search_group]
    for name in grid:
        if getattr(args, name) is not None:
            raise ConfigError(f"--{name} is what group {args.search_group} searches. Leave it out.")
    for name in (*DEFAULTS, "ppo_batch_size", "micro_batch_size"):
        if any(override.startswith(f"{legacy_key(name)}=") for override in args.overrides):
            raise ConfigError(f"{legacy_key(name)} is an option of the search: use --{name}.")
    fixed = fixed_values(args)
    settings = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    first = [plan_run(args, chosen, complete(args, chosen, fixed)) for chosen in settings]
    candidates = list(first)
    for number in range(2, args.seeds + 1):
        for plain, chosen in zip(first, settings, strict=True):
            assert plain.run.config is not None
            seed = repeat_seed(plain.run.config.seed.train, number, "--seeds")
            candidates.append(plan_run(args, chosen, plain.params, number, [f"seed.train={seed}"]))
    return candidates


def complete(args: argparse.Namespace, chosen: Params, fixed: Params) -> Params:
    """All hyper-parameters of a setting, searched and fixed."""
    params = {name: chosen.get(name, fixed.get(name, "")) for name in DEFAULTS}
    episodes = int(params["train_batch_size"]) * int(params["n_rollout"])
    batches = {"ppo_batch_size": args.ppo_batch_size or str(episodes), "micro_batch_size": str(args.micro_batch_size)}
    return params | batches


def plan_run(
    args: argparse.Namespace, chosen: Params, params: Params, seed: int = 1, extra: Sequence[str] = ()
) -> Candidate:
    """A setting with one of its seeds, of which the first is that of the configuration."""
    end = f"-seed{seed}" if seed > 1 else ""
    name = "_".join([args.exp_base_name, *(f"{key}_{value}" for key, value in chosen.items())]) + end
    words = [
        f"model.base_model={args.base_model}",
        f"model.experiment_name={name}",
        f"system.n_gpus={args.n_gpus}",
        *FIXED,
        *(f"{legacy_key(key)}={value}" for key, value in params.items()),
        *args.overrides,
        *extra,
    ]
    changes = translate(read_settings(args.env_name, words, os.environ))
    config = load_config("base", [change.override for change in changes])
    run = Run(
        name=name,
        command=(sys.executable, "-m", "ragen.legacy", args.env_name, *words),
        log=RUN_LOGS / f"exp_{name}.log",
        run_dir=Path(config.trainer.default_local_dir),
        total_steps=config.trainer.total_training_steps,
        value=", ".join(f"{key}={value}" for key, value in chosen.items()),
        seed=seed,
        fields=chosen,
        has_score=True,
        config=config,
    )
    return Candidate(run, params)


def fixed_values(args: argparse.Namespace) -> Params:
    """What is not searched: from the command line, else the best of an earlier group, else the default."""
    values: Params = {}
    for group, grid in GROUPS.items():
        if group == args.search_group:
            continue
        given = {name: getattr(args, name) for name in grid if getattr(args, name) is not None}
        stored = read_best(group, args) if group < args.search_group and len(given) < len(grid) else {}
        values |= {name: given.get(name) or stored.get(name) or DEFAULTS[name] for name in grid}
    return values


def read_best(group: int, args: argparse.Namespace) -> Params:
    """The stored best of a group; empty, with a note, when it has not been searched."""
    path = BEST / f"searched_params_group_{group}.json"
    if not path.exists():
        defaults = ", ".join(f"{name}={DEFAULTS[name]}" for name in GROUPS[group])
        print(f"note: group {group} has not been searched here ({path}); its defaults are taken: {defaults}")
        return {}
    record = read_object(path)
    for key in ("env_name", "base_model"):
        if record[key] != getattr(args, key):
            print(f"note: the best of group {group} was found with {key}={record[key]}, not {getattr(args, key)}")
    return {name: f"{record[name]:g}" for name in GROUPS[group]}


def find_slots(args: argparse.Namespace) -> list[Slot]:
    """Groups of n_gpus GPUs that nobody else uses; one of them without --parallel."""
    machine = find_machine(None)
    if not machine.gpus:
        return [Slot(devices="", size=args.n_gpus, label=f"{args.n_gpus}xCPU")]
    busy = busy_gpus()
    free = tuple(gpu for gpu in machine.gpus if gpu not in busy)
    if len(free) < args.n_gpus:
        raise ConfigError(
            f"--n_gpus is {args.n_gpus}, but of the GPUs {','.join(machine.gpus)} only {len(free)} have half of their "
            "memory free. Wait, or lower --n_gpus."
        )
    slots = cut_slots(replace(machine, gpus=free[: len(free) // args.n_gpus * args.n_gpus]), args.n_gpus)
    return slots if args.parallel else slots[:1]


def busy_gpus() -> set[str]:
    """GPUs with more than half of their memory taken, as far as nvidia-smi says."""
    rows = [row for row in query_gpus("index,memory.used,memory.total") if "".join(row[1:]).isdecimal()]
    return {gpu for gpu, used, total in rows if float(used) >= MAX_MEMORY_USED * float(total)}


if __name__ == "__main__":
    sys.exit(main())
