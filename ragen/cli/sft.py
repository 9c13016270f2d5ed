"""`ragen sft`: supervised training on demonstrations of the solver.

Tested in tests/sft/test_command.py.
"""

from collections.abc import Sequence

from ragen.config import argument_parser
from ragen.sft.command import run
from ragen.sft.config import load_sft


def main(argv: Sequence[str]) -> None:
    parser = argument_parser(
        "Supervised training on demonstrations of the solver: data, training, merging, validation. Beside the keys of "
        "the normal configuration (model_path, lora.*, es_manager.train.env_configs.tags, ...) it takes those of "
        "config/sft/sft.yaml (sft.epochs, ...)."
    )
    parser.prog = "ragen sft"
    args = parser.parse_args(argv)
    run(*load_sft(args.config_name, args.overrides, args.config_dir))
