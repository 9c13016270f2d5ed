"""`ragen chat`: talk to a model or a checkpoint.

Tested in tests/evaluation/test_talk.py.
"""

import argparse
from collections.abc import Sequence

from ragen.config.arguments import positive, share
from ragen.evaluation.talk import ASSISTANT, COMMANDS, ChatOptions, talk


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="ragen chat",
        description="Talk to a model: every line of the input is a message, replies are written to the output.",
        epilog=COMMANDS,
    )
    parser.add_argument("model", help="a checkpoint, a run, or any model_path: a folder, a hub name, tiny/sokoban")
    parser.add_argument("--system", default=ASSISTANT, metavar="TEXT", help="system prompt (%(default)s)")
    parser.add_argument("--temperature", type=temperature, default=0.7, metavar="T", help="0 is greedy (%(default)s)")
    parser.add_argument("--top-p", type=share, default=1.0, metavar="P", help="nucleus of the sampling (%(default)s)")
    parser.add_argument("--max-tokens", type=positive, default=400, metavar="N", help="of a reply (%(default)s)")
    parser.add_argument("--max-model-len", type=positive, default=3600, metavar="N", help="of all (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="same seed, same messages: same replies (%(default)s)")
    return talk(ChatOptions(**vars(parser.parse_args(argv))))


def temperature(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 100:
        raise argparse.ArgumentTypeError(f"{text} is no number from 0 to 100")
    return value
