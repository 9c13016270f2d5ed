"""Draw a run's collapse metrics: python gradient_analysis/plot_collapse.py --run-dir RUN"""

import sys

from ragen.plotting.collapse import main

if __name__ == "__main__":
    sys.exit(main())
