"""Train: python train.py --config-name _2_sokoban [key=value ...]"""

import sys

from ragen.cli import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
