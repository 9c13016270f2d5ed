"""Three gradient analyses in one figure: python gradient_analysis/plot_icml_steps.py --step0-dir DIR ..."""

import sys
from pathlib import Path

from ragen.plotting.step_grid import main

if __name__ == "__main__":
    sys.exit(main(data=Path(__file__).parent / "data"))
