"""`python -m ragen.legacy ENV key=value ...`, which train.sh calls."""

import sys

from ragen.legacy.command import main

sys.exit(main())
