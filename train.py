"""Train: python train.py --config-name _2_sokoban [key=value ...]"""

import sys

from ragen.trainer.command import main

if __name__ == "__main__":
    sys.exit(main())
