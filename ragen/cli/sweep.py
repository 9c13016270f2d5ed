"""`ragen sweep NAME`: the options of each experiment, in two tables.

Tested in tests/sweeps/test_plan.py.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from ragen.config.arguments import not_negative, num_seeds, positive, share
from ragen.config.strict import did_you_mean
from ragen.sweeps.command import run_helper, run_sweep
from ragen.sweeps.driving.run import shell_line
from ragen.sweeps.driving.slots import split_list
from ragen.sweeps.experiments import ALGORITHMS, SWEEPS
from ragen.sweeps.plan import Options

BOOLEANS = {"true": True, "1": True, "yes": True, "y": True, "false": False, "0": False, "no": False, "n": False}


def boolean(text: str) -> bool:
    if text.lower() not in BOOLEANS:
        raise argparse.ArgumentTypeError(f"{text!r} is neither True nor False")
    return BOOLEANS[text.lower()]


def comma_list(text: str) -> tuple[str, ...]:
    if not (items := split_list(text)):
        raise argparse.ArgumentTypeError("the list is empty")
    return items


def algorithm(text: str) -> str:
    if text.upper() not in ALGORITHMS:
        raise argparse.ArgumentTypeError(f"{text!r} is neither {' nor '.join(ALGORITHMS)}")
    return text.upper()


def plain_name(text: str) -> str:
    if not re.fullmatch(r"[\w.+-]+", text):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be part of a file name; use letters, digits, . + - and _")
    return text


class Option(NamedTuple):
    """One option; `type` None is a flag."""

    type: Any
    metavar: str
    help: str


OPTIONS = {
    "--algo": Option(algorithm, "NAME", "PPO or GRPO (%(default)s)"),
    "--checkpoint-step": Option(not_negative, "N", "which saved step (%(default)s)"),
    "--checkpoint-root": Option(str, "DIR", "folder of the global_step_<N> (grad-analysis's own)"),
    "--resume-from-path": Option(str, "DIR", "exactly this global_step_<N> folder"),
    "--with-val": Option(None, "", "validate before the probe"),
    "--rollout_filter_include_zero": Option(boolean, "BOOL", "keep groups whose rewards do not vary (%(default)s)"),
    "--steps": Option(positive, "N", "training steps (%(default)s)"),
    "--gpus": Option(comma_list, "LIST", "GPU ids, separated by commas (all there are)"),
    "--gpus-per-exp": Option(positive, "N", "GPUs for each run (%(default)s)"),
    "--runs-per-gpu": Option(positive, "K", "runs that share a GPU, or the CPU, at a time (%(default)s)"),
    "--ray-num-cpus": Option(positive, "N", "CPUs of the Ray of a run (%(default)s)"),
    "--gpu-memory-utilization": Option(share, "V", "share of GPU memory for rollouts (%(default)s)"),
    "--model-path": Option(str, "M", "model (%(default)s)"),
    "--model-name": Option(plain_name, "NAME", "its name in run names and paths (end of the model path)"),
    "--ppo-micro-batch-size-per-gpu": Option(positive, "N", "samples per update pass (%(default)s)"),
    "--log-prob-micro-batch-size-per-gpu": Option(positive, "N", "samples per log-prob pass (%(default)s)"),
    "--save-freq": Option(int, "N", "checkpoint every N steps; -1 never (%(default)s)"),
    "--seeds": Option(num_seeds, "N", "run every value with N seeds (%(default)s)"),
    "--ray": Option(str, "ADDRESS", "give the runs to the Ray cluster at ADDRESS; `local` starts one here"),
    "--dry-run": Option(None, "", "print the plan and the commands; start nothing"),
    "--skip-done": Option(None, "", "leave out runs that have ended; continue the others"),
}

COMMON = {"--gpus": None, "--ray-num-cpus": 16, "--model-path": "Qwen/Qwen2.5-3B", "--model-name": None}
COMMON |= {"--dry-run": False, "--skip-done": False}
SWEEP = COMMON | {"--steps": 400, "--gpus-per-exp": 1, "--gpu-memory-utilization": 0.5, "--save-freq": -1}
SWEEP |= {"--seeds": 1, "--runs-per-gpu": 1, "--ray": None}
HELPER = COMMON | {"--algo": "PPO", "--gpu-memory-utilization": 0.3}
HELPER |= {"--ppo-micro-batch-size-per-gpu": 4, "--log-prob-micro-batch-size-per-gpu": 4}


class Experiment(NamedTuple):
    """One word behind `ragen sweep`."""

    sentence: str
    defaults: dict[str, Any]
    """Its options and their defaults."""
    description: str = "One run of Sokoban per value, side by side where there are GPUs."


EXPERIMENTS = {
    "top-p": Experiment("how strongly to filter groups by reward variance", SWEEP),
    "kl": Experiment(
        "how strongly to hold the policy at the reference", SWEEP | {"--rollout_filter_include_zero": True}
    ),
    "entropy": Experiment("how strongly to reward entropy", SWEEP | {"--rollout_filter_include_zero": True}),
    "grad-analysis": Experiment(
        "train and probe the gradient by reward-variance bucket",
        HELPER | {"--steps": 101, "--save-freq": 100},
        "Train Sokoban with a top-p 0.9 filter and probe the gradient at steps 1, 51, 101, ...",
    ),
    "probe-ckpt": Experiment(
        "probe the gradient of a saved step",
        HELPER | {"--checkpoint-step": 101, "--checkpoint-root": None, "--resume-from-path": None, "--with-val": False},
        "Probe the gradient of a saved step, without training, and end.",
    ),
}


def main(argv: Sequence[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print(usage())
        return 0
    word, *rest = argv
    if word not in EXPERIMENTS:
        hint = did_you_mean(word, EXPERIMENTS)
        print(f"ragen sweep: unknown experiment {word!r}.{hint}\n\n{usage()}", file=sys.stderr)
        return 2
    run = run_sweep if word in SWEEPS else run_helper
    again = [*rest, *([] if "--skip-done" in rest else ["--skip-done"])]
    return run(word, parse(word, rest), resume_with=f"`ragen sweep {word} {shell_line(again)}`")


def usage() -> str:
    lines = [f"  {word:<14} {experiment.sentence}" for word, experiment in EXPERIMENTS.items()]
    return "\n".join(["usage: ragen sweep NAME ...   (ragen sweep NAME --help)", "", *lines])


class Parser(argparse.ArgumentParser):
    """Options stand before, between and after key=value; a mistake shows the whole help."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}\n", file=sys.stderr)
        self.print_help(sys.stderr)
        sys.exit(2)


def make_parser(word: str) -> Parser:
    experiment = EXPERIMENTS[word]
    parser = Parser(
        prog=f"ragen sweep {word}",
        description=experiment.description,
        allow_abbrev=False,
        epilog="Trailing key=value arguments go to the trainer and win over what the experiment sets. "
        "Keys and their meaning: ragen config --config-name _2_sokoban",
    )
    if sweep := SWEEPS.get(word):

        def values(text: str) -> tuple[str, ...]:
            for value in comma_list(text):
                try:
                    sweep.point_of(value, True)
                except ValueError:
                    raise argparse.ArgumentTypeError(f"{value!r} is not a value of this sweep") from None
            return comma_list(text)

        shown = f"values, separated by commas ({sweep.default_values})"
        default = values(sweep.default_values)
        parser.add_argument(sweep.value_option, dest="values", type=values, default=default, metavar="LIST", help=shown)
    for name, option in OPTIONS.items():
        if name in experiment.defaults:
            settings = {"action": "store_true"} if option.type is None else option._asdict()
            parser.add_argument(name, **settings | {"help": option.help, "default": experiment.defaults[name]})
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="for the trainer")
    return parser


def parse(word: str, argv: list[str]) -> Options:
    """The options of an experiment; a mistake ends the program with the help and code 2."""
    parser = make_parser(word)
    args = parser.parse_intermixed_args(argv)
    for override in args.overrides:
        if "=" not in override and not override.startswith("~"):
            parser.error(f"{override!r} is neither an option nor key=value")
    if args.model_name is None:
        try:
            args.model_name = plain_name(Path(args.model_path).name)  # Qwen/Qwen2.5-3B -> Qwen2.5-3B
        except argparse.ArgumentTypeError as error:
            parser.error(f"--model-path: {error}. Give a --model-name")
    return Options(**vars(args))
