"""What the program computes, as hashes: run it before and after a change that must not change anything, and compare.

    python tools/fingerprint.py > before.txt     # about five minutes on two cores
    python tools/fingerprint.py | diff before.txt -

Five steps of GRPO, PPO and LoRA, supervised training, a run on two ranks, a gradient analysis and an evaluation, all on
the embedded models, each in a process of its own with one thread. Hashed are the tensors of the last checkpoint,
every metric that is not read off a clock, and the episodes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from safetensors import safe_open

from ragen.tracking.episodes import episode_files, episode_lines, read_episodes
from ragen.tracking.names import without_times
from ragen.tracking.rundir import read_metrics

ROOT = Path(__file__).parents[1]
SHORT = ("trainer.total_training_steps=5", "trainer.test_freq=5", "trainer.save_freq=5", "es_manager.val.env_groups=16")
LORA = ("lora.rank=8", "lora.alpha=16")
TWO_RANKS = ("trainer.n_gpus_per_node=2", "system.CUDA_VISIBLE_DEVICES='0,1'", "trainer.total_training_steps=2")
ANALYSIS = ("trainer.gradient_analysis_env_groups=12", "trainer.total_training_steps=1")


def train(folder: Path, *settings: str) -> None:
    quickstart = (str(ROOT / "train.py"), "--config-name", "quickstart")
    execute(*quickstart, *SHORT, *settings, f"trainer.default_local_dir='{folder}'")


def finetune(folder: Path) -> None:
    settings = ("sft.train_size=64", "sft.epochs=2", "sft.validate_merged=False", f"sft.output_dir='{folder}'")
    execute("-m", "ragen.cli", "sft", "--config-name", "quickstart", *settings)


def evaluate(folder: Path) -> None:
    settings = ("es_manager.val.env_groups=32", f"trainer.local_log_dir='{folder}_log'")
    execute("-m", "ragen.cli", "eval", "tiny", "--config-name", "_2_sokoban", *settings)
    (found,) = folder.with_name(f"{folder.name}_log").iterdir()
    found.rename(folder)


RUNS: dict[str, Callable[[Path], None]] = {
    "grpo": train,
    "ppo": lambda folder: train(folder, "algorithm.adv_estimator=gae"),
    "lora": lambda folder: train(folder, *LORA),
    "gradient_analysis": lambda folder: train(folder, *ANALYSIS),
    "two_ranks": lambda folder: train(folder, *TWO_RANKS),
    "sft": finetune,
    "evaluation": evaluate,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=RUNS, nargs="+", default=list(RUNS))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ragen-fingerprint-") as temporary:
        for name in args.only:
            folder = Path(temporary) / name
            RUNS[name](folder)
            for kind, digest in fingerprints(folder).items():
                print(f"{name:<18} {kind:<9} {digest}", flush=True)
    return 0


def execute(*words: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    result = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"{' '.join(words)} failed:\n{result.stdout[-2000:]}\n{result.stderr[-2000:]}")


def fingerprints(run: Path) -> dict[str, str]:
    """Hashes of what a run left behind, by kind."""
    found = {"tensors": tensors(run), "metrics": metrics(run)}
    if (run / "episodes").is_dir():
        found["episodes"] = episodes(run)
    return found


def tensors(run: Path) -> str:
    def parts() -> Iterable[bytes]:
        for path in sorted(run.rglob("*.safetensors")):
            with safe_open(path, "pt") as file:
                for key in sorted(file.keys()):
                    tensor = file.get_tensor(key)
                    yield f"{path.relative_to(run)} {key} {tensor.dtype} {tuple(tensor.shape)}".encode()
                    yield tensor.contiguous().view(-1).numpy().tobytes()

    return digest(parts())


def metrics(run: Path) -> str:
    return digest(json.dumps(without_times(row), sort_keys=True).encode() for row in read_metrics(run))


def episodes(run: Path) -> str:
    return digest(line for path in episode_files(run) for line in episode_lines(read_episodes(path)))


def digest(parts: Iterable[bytes]) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(part)
    return total.hexdigest()[:32]


if __name__ == "__main__":
    sys.exit(main())
