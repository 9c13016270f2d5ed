"""`ragen sweep NAME`: one parser for each experiment, the same options where they mean the same.

Tested in tests/sweeps/test_plan.py.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from ragen.config.arguments import not_negative, num_seeds, positive
from ragen.config.strict import did_you_mean
from ragen.sweeps.command import run_helper, run_sweep
from ragen.sweeps.experiments import ALGORITHMS, SWEEPS
from ragen.sweeps.plan import Options
from ragen.sweeps.run import shell_line
from ragen.sweeps.slots import split_list

DEFAULT_MODEL = "Qwen/Qwen2.5-3B"
DESCRIPTIONS = {
    "top-p": "how strongly to filter groups by reward variance",
    "kl": "how strongly to hold the policy at the reference",
    "entropy": "how strongly to reward entropy",
    "grad-analysis": "train and probe the gradient by reward-variance bucket",
    "probe-ckpt": "probe the gradient of a saved step",
}


def main(argv: Sequence[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print(usage())
        return 0
    word, *rest = argv
    if word not in PARSERS:
        hint = did_you_mean(word, PARSERS)
        print(f"ragen sweep: unknown experiment {word!r}.{hint}\n\n{usage()}", file=sys.stderr)
        return 2
    run = run_sweep if word in SWEEPS else run_helper
    again = [*rest, *([] if "--skip-done" in rest else ["--skip-done"])]
    return run(word, parse(word, rest), resume_with=f"`ragen sweep {word} {shell_line(again)}`")


def usage() -> str:
    lines = [f"  {word:<14} {sentence}" for word, sentence in DESCRIPTIONS.items()]
    return "\n".join(["usage: ragen sweep NAME ...   (ragen sweep NAME --help)", "", *lines])


class Parser(argparse.ArgumentParser):
    """Options stand before, between and after key=value; a mistake shows the whole help."""

    def __init__(self, word: str, description: str) -> None:
        super().__init__(
            prog=f"ragen sweep {word}",
            description=description,
            allow_abbrev=False,
            epilog="Trailing key=value arguments go to the trainer and win over what the experiment sets. "
            "Keys and their meaning: ragen config --config-name _2_sokoban",
        )

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}\n", file=sys.stderr)
        self.print_help(sys.stderr)
        sys.exit(2)


def share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share above 0 and up to 1")
    return value


def boolean(text: str) -> bool:
    words = {"true": True, "1": True, "yes": True, "y": True, "false": False, "0": False, "no": False, "n": False}
    if text.lower() not in words:
        raise argparse.ArgumentTypeError(f"{text!r} is neither True nor False")
    return words[text.lower()]


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


def sweep_parser(word: str) -> Parser:
    """top-p, kl, entropy"""
    sweep = SWEEPS[word]
    parser = Parser(word, f"{sweep.title}: one run of Sokoban per value, side by side where there are GPUs.")

    def values(text: str) -> tuple[str, ...]:
        for value in comma_list(text):
            try:
                sweep.check(value)
            except ValueError:
                raise argparse.ArgumentTypeError(f"{value!r} is no value of this sweep") from None
        return comma_list(text)

    parser.add_argument(
        sweep.value_option,
        dest="values",
        type=values,
        default=values(sweep.default_values),
        metavar="LIST",
        help=f"values, separated by commas ({sweep.default_values})",
    )
    if sweep.has_include_zero:
        parser.add_argument(
            "--rollout_filter_include_zero",
            dest="include_zero",
            type=boolean,
            default=True,
            metavar="BOOL",
            help="keep groups whose rewards do not vary (%(default)s)",
        )
    parser.add_argument("--steps", type=positive, default=400, metavar="N", help="training steps (%(default)s)")
    add_gpus(parser)
    parser.add_argument("--gpus-per-exp", type=positive, default=1, metavar="N", help="GPUs for each run (%(default)s)")
    add_common(parser, gpu_memory_utilization=0.5)
    add_save_freq(parser, -1)
    parser.add_argument(
        "--seeds", type=num_seeds, default=1, metavar="N", help="run every value with N seeds (%(default)s)"
    )
    parser.add_argument(
        "--ray", metavar="ADDRESS", help="give the runs to the Ray cluster at ADDRESS; `local` starts one here"
    )
    add_last(parser)
    return parser


def gradient_parser(word: str) -> Parser:
    """grad-analysis"""
    parser = Parser(word, "Train Sokoban with a top-p 0.9 filter and probe the gradient at steps 1, 51, 101, ...")
    add_algorithm(parser)
    parser.add_argument("--steps", type=positive, default=101, metavar="N", help="training steps (%(default)s)")
    add_gpus(parser)
    add_common(parser, gpu_memory_utilization=0.3)
    add_micro_batches(parser)
    add_save_freq(parser, 100)
    add_last(parser)
    return parser


def probe_parser(word: str) -> Parser:
    """probe-ckpt"""
    parser = Parser(word, "Probe the gradient of a saved step, without training, and end.")
    add_algorithm(parser)
    parser.add_argument(
        "--checkpoint-step", type=not_negative, default=101, metavar="N", help="which saved step (%(default)s)"
    )
    parser.add_argument("--checkpoint-root", metavar="DIR", help="folder of the global_step_<N> (grad-analysis's own)")
    parser.add_argument("--resume-from-path", metavar="DIR", help="this very global_step_<N> folder")
    parser.add_argument("--with-val", action="store_true", help="validate before the probe")
    add_gpus(parser)
    add_common(parser, gpu_memory_utilization=0.3)
    add_micro_batches(parser)
    add_last(parser)
    return parser


PARSERS = dict.fromkeys(SWEEPS, sweep_parser) | {"grad-analysis": gradient_parser, "probe-ckpt": probe_parser}


def add_algorithm(parser: Parser) -> None:
    parser.add_argument("--algo", type=algorithm, default="PPO", metavar="NAME", help="PPO or GRPO (%(default)s)")


def add_gpus(parser: Parser) -> None:
    parser.add_argument("--gpus", type=comma_list, metavar="LIST", help="GPU ids, separated by commas (all there are)")


def add_save_freq(parser: Parser, default: int) -> None:
    parser.add_argument(
        "--save-freq", type=int, default=default, metavar="N", help="checkpoint every N steps; -1 never (%(default)s)"
    )


def add_micro_batches(parser: Parser) -> None:
    for name, what in (("ppo", "samples per update pass"), ("log-prob", "samples per log-prob pass")):
        parser.add_argument(
            f"--{name}-micro-batch-size-per-gpu", type=positive, default=4, metavar="N", help=f"{what} (%(default)s)"
        )


def add_common(parser: Parser, *, gpu_memory_utilization: float) -> None:
    parser.add_argument(
        "--ray-num-cpus", type=positive, default=16, metavar="N", help="CPUs of the Ray of a run (%(default)s)"
    )
    parser.add_argument(
        "--gpu-memory-utilization",
        type=share,
        default=gpu_memory_utilization,
        metavar="V",
        help="share of GPU memory for rollouts (%(default)s)",
    )
    parser.add_argument("--model-path", default=DEFAULT_MODEL, metavar="M", help="model (%(default)s)")
    parser.add_argument(
        "--model-name", type=plain_name, metavar="NAME", help="its name in run names and paths (end of the model path)"
    )


def add_last(parser: Parser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="print the plan and the commands; start nothing")
    parser.add_argument("--skip-done", action="store_true", help="leave out runs that have ended; continue the others")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="for the trainer")


def parse(word: str, argv: list[str]) -> Options:
    """The options of an experiment; a mistake ends the program with the help and code 2."""
    parser = PARSERS[word](word)
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
