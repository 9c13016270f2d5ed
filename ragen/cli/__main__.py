"""`python -m ragen.cli COMMAND ...`, the same as `ragen COMMAND ...`."""

import sys

from ragen.cli import main

sys.exit(main())
