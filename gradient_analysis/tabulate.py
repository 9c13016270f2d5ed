"""Print a run's gradient analyses: python gradient_analysis/tabulate.py RUN"""

import sys

from ragen.plotting.gradient_table import main

if __name__ == "__main__":
    sys.exit(main())
