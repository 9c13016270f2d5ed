"""What tests of figures share."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "gradient_analysis" / "plot_gradient_analysis.py"
PNGS = ["summary", "plots", "loss_plots", "reward_std", "normed_grads"]


def seven_files(step: int | str) -> set[str]:
    names = {f"gradient_analysis_{name}_step_{step}.png" for name in PNGS}
    return names | {
        f"gradient_analysis_metrics_step_{step}.json",
        f"gradient_analysis_bucket_rv_table_step_{step}.csv",
    }


def contents(folder: Path) -> dict[str, object]:
    """Files byte for byte; metrics by value, since W&B writes 1.0 as 1."""
    return {
        path.name: json.loads(path.read_bytes()) if path.suffix == ".json" else path.read_bytes()
        for path in folder.iterdir()
    }


def run_script(*arguments: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The program as a user types it, without any W&B login but the given one."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    clean |= {"HOME": str(cwd), "NETRC": str(cwd / ".netrc"), **environment}
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(
        command, cwd=cwd, env=clean, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
    )


def ordered(step: int) -> list[str]:
    pictures = [f"gradient_analysis_{name}_step_{step}.png" for name in PNGS]
    return [
        *pictures,
        f"gradient_analysis_metrics_step_{step}.json",
        f"gradient_analysis_bucket_rv_table_step_{step}.csv",
    ]


def texts(figure) -> list[str]:
    return [text.get_text() for axis in figure.axes for text in axis.texts]
