"""A run with plausible numbers: six buckets, analyses at steps 1, 51 and 101, validation and collapse metrics."""

import math
import random
from collections.abc import Iterator
from typing import Any

STEPS = (1, 51, 101)
NUM_BUCKETS = 6
GROUPS_PER_BUCKET = 21
GROUP_SIZE = 16
COLUMNS = ["bucket", "group_id", "reward_std"]

# Mean reward std and task norm of the buckets, about as published for PPO.
STDS = (0.1, 0.15, 0.2, 3.0, 4.7, 5.8)
TASK = {1: (6.7, 6.7, 6.7, 9.6, 20, 26), 51: (3.1, 3.0, 3.3, 5.2, 9.9, 13.4), 101: (1.05, 1.05, 2.2, 2.4, 3.7, 4.8)}
REGULARIZER = {1: 0.043, 51: 0.4, 101: 2.0}


def tables(step: int, prefix: str = "grad_norm") -> dict[str, list[list[Any]]]:
    """Name -> rows of the group tables of a step."""
    rng = random.Random(step)
    found = {}
    for bucket, mean in enumerate(STDS, start=1):
        stds = [mean * (0.9 + 0.2 * rng.random()) for _ in range(GROUPS_PER_BUCKET)]
        name = f"bucket_{bucket}"
        found[f"{prefix}/{name}/group_rv_table"] = [[name, 100 * bucket + i, std] for i, std in enumerate(stds)]
    return found


def bucket_metrics(step: int, *, prefix: str = "grad_norm", kl: bool = True, noise: bool = True) -> dict[str, float]:
    """The metrics of the analysis of a step."""
    metrics = {}
    rows = tables(step, prefix)
    num_samples = GROUPS_PER_BUCKET * GROUP_SIZE
    for bucket, task in [*enumerate(TASK[step], start=1), ("all", 8.0)]:
        if bucket == "all":
            name, stds, samples = "all", [row[2] for table in rows.values() for row in table], 6 * num_samples
        else:
            name, samples = f"bucket_{bucket}", num_samples
            stds = [row[2] for row in rows[f"{prefix}/{name}/group_rv_table"]]
        entropy = REGULARIZER[step] * (1 + 0.02 * math.sin(task))
        norms = {"task": task, "entropy": entropy, "kl": 0.3 * entropy if kl else 0.0}
        losses = {"policy": 0.01 * math.cos(task), "entropy": -0.0012, "kl": 2e-5 * task if kl else 0.0}
        own = {
            "sample_count": samples,
            "sample_pct": samples / (6 * num_samples),
            "reward_std_mean": sum(stds) / len(stds),
            "reward_std_min": min(stds),
            "reward_std_max": max(stds),
            "group_rv_count": len(stds),
            **norms,
            **{f"per_sample/{c}": norm / samples for c, norm in norms.items()},
            **{f"per_token/{c}": norm / (samples * 180) for c, norm in norms.items()},
            **{f"loss/{c}": loss for c, loss in losses.items()},
            "loss/total": sum(losses.values()),
        }
        if noise:
            for component, norm in norms.items():
                spread = 0.15 if component == "task" else 0.05
                floor = 0.8 * min(TASK[step]) if component == "task" else 0.02 * norm
                own |= {
                    f"norm_low/{component}": norm * (1 - spread),
                    f"norm_high/{component}": norm * (1 + spread),
                    f"norm_debiased/{component}": math.sqrt(norm**2 - floor**2) if norm else 0.0,
                    f"split_half_cosine/{component}": 1 - (floor / norm) ** 2 if norm else 0.0,
                }
            own |= {"cosine/task_entropy": -0.05, "cosine/task_kl": 0.1 * kl, "cosine/entropy_kl": 0.02 * kl}
        metrics |= {f"{prefix}/{name}/{key}": value for key, value in own.items()}
    return metrics


def collapse_metrics(step: int) -> dict[str, float]:
    """Mutual information that falls while the entropy of the reasoning stays."""
    fade = math.exp(-step / 60)
    metrics = {"collapse/valid_thinking_rate": 0.97}
    for name, num_columns, scale in (("first_turn", 8, 1.0), ("trajectory", 64, 1.6)):
        mi = 0.22 * scale * fade + 0.003
        metrics |= {
            f"collapse_{name}_sample/{key}": value
            for key, value in {
                "conditional_entropy_est": 0.9 - 0.2 * fade,
                "reasoning_entropy_est": 0.9 - 0.2 * fade + mi,
                "mi_estimate": mi,
                "mi_upper_bound": math.log(num_columns),
                "retrieval_accuracy": 1 / num_columns + 0.7 * fade,
                "retrieval_chance_level": 1 / num_columns,
            }.items()
        }
    return metrics


def log_run(*, steps: tuple[int, ...] = STEPS, **options: Any) -> Iterator[tuple[int, dict, dict]]:
    """Step, metrics and tables, in the order a run logs them."""
    for step in range(0, 102, 10):
        yield step, {"val-env/Sokoban/success": 0.1 + 0.006 * step, **collapse_metrics(step)}, {}
        if step + 1 in steps:
            yield step + 1, {"actor/lr": 1e-6, **bucket_metrics(step + 1, **options)}, tables(step + 1)


def fill(trackers: Any, **options: Any) -> None:
    """Log the synthetic run to trackers or to a run directory."""
    for step, metrics, own_tables in log_run(**options):
        for name, rows in own_tables.items():
            trackers.log_table(step, name, COLUMNS, rows)
        trackers.log(step, metrics)
