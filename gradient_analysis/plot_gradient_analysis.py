"""Draw a run's gradient analyses: python gradient_analysis/plot_gradient_analysis.py --run-dir RUN"""

import sys

from ragen.plotting.gradient_command import main

if __name__ == "__main__":
    sys.exit(main())
