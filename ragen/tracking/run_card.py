"""card.json and card.md of a run directory: what a run was, what it met, what it took, over all its resumes.

    begin_card(run_dir, config, device="cuda", from_step=0)   # an attempt begins: versions, machine, counters
    end_card(run_dir)                                         # it ends, by whatever: everything else is read back

What is counted is the sum of metrics.jsonl, in which every step has one line, resumed or not; what was done twice is
told apart from it. An attempt that was killed stays `running` until the next one finds it.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ragen.config.schema import Config
from ragen.errors import RagenError
from ragen.files import number, read_object
from ragen.tracking import names
from ragen.tracking.card_page import to_markdown
from ragen.tracking.energy import NotMeasured, joules, read_counters
from ragen.tracking.machine import machine_facts, used_gpus, version_facts
from ragen.tracking.rundir import read_metrics, read_records, read_status, write_atomic
from ragen.tracking.timing import TOTALS

logger = logging.getLogger(__name__)

CARD, PAGE = "card.json", "card.md"
DERIVED = {*TOTALS, "step", "train_step", "eval_step"}
"""Times that are sums of others; the parts of a step are those that remain."""
Row = Mapping[str, Any]


def write_card(write: Callable[[], None]) -> None:
    """Begin or end a card. It sums up what other files hold: a run does without it, but says so."""
    try:
        write()
    except Exception as error:
        logger.warning("The card of the run is not written (%s: %s).", type(error).__name__, error)


def read_card(run_dir: Path) -> dict[str, Any]:
    """card.json of a run directory."""
    return read_object(run_dir / CARD)


# --- an attempt begins ----------------------------------------------------------------------------------------------


def begin_card(run_dir: Path, config: Config, *, device: str, from_step: int) -> None:
    """A process begins to train, or continues after `from_step`."""
    gpus = used_gpus(device, config.trainer.n_gpus_per_node)
    attempt = {
        "state": "running",
        "started_at": _now(),
        "from_step": from_step,
        "config_sha256": _sha256(run_dir / "config.yaml"),
        "versions": version_facts(config.actor_rollout_ref.rollout.name),
        "machine": machine_facts(gpus) | {"machines": config.trainer.nnodes},
        "energy": _start_energy([gpu.uuid for gpu in gpus], num_machines=config.trainer.nnodes),
    }
    card = {
        "run": {
            "project": config.trainer.project_name,
            "name": config.trainer.experiment_name,
            "model": config.model_path,
            "estimator": config.algorithm.adv_estimator,
            "environments": list(dict.fromkeys(config.es_manager.train.env_configs.tags)),
            "total_steps": config.trainer.total_training_steps,
        },
        "seeds": {"train": config.seed.train, "val": config.seed.val},
        "attempts": [*_earlier_attempts(run_dir), attempt],
    }
    write_atomic(run_dir / CARD, json.dumps(card, indent=2) + "\n")


def _earlier_attempts(run_dir: Path) -> list[dict[str, Any]]:
    """Those on the card that is there, if it is one. An attempt that never ended was killed."""
    try:
        return [_as_killed(each) if each["state"] == "running" else each for each in read_card(run_dir)["attempts"]]
    except (RagenError, KeyError, TypeError):
        return []


def _as_killed(attempt: Mapping[str, Any]) -> dict[str, Any]:
    is_counted = "counters_mj" in attempt["energy"]
    energy = {"note": "the process was killed"} if is_counted else attempt["energy"]
    return {**attempt, "state": "killed", "energy": energy}


def _start_energy(uuids: Sequence[str], *, num_machines: int) -> dict[str, Any]:
    """The counters of an attempt that begins; a note where there are none."""
    try:
        if num_machines > 1:
            raise NotMeasured("only the GPUs of one machine can be read")
        return {"counters_mj": read_counters(uuids)}
    except NotMeasured as error:
        return {"note": str(error)}


# --- an attempt ends ------------------------------------------------------------------------------------------------


def end_card(run_dir: Path) -> None:
    """The last attempt has ended as status.json says: write the card and its page."""
    card, status = read_card(run_dir), read_status(run_dir)
    attempt = card["attempts"][-1]
    started, ended = attempt["started_at"], _now()
    attempt |= {
        "state": status["state"],
        "reason": status["reason"],
        "to_step": status["step"],
        "ended_at": ended,
        "seconds": (datetime.fromisoformat(ended) - datetime.fromisoformat(started)).total_seconds(),
        "energy": _end_energy(attempt["energy"]),
    }
    dropped = run_dir / "metrics.dropped.jsonl"
    again = read_metrics(dropped) if dropped.is_file() else []
    card = card | summarize(card["attempts"], status, read_records(run_dir), again)
    write_atomic(run_dir / CARD, json.dumps(card, indent=2) + "\n")
    write_atomic(run_dir / PAGE, to_markdown(card))


def _end_energy(begun: Mapping[str, Any]) -> dict[str, Any]:
    if "counters_mj" not in begun:
        return dict(begun)
    try:
        return {"joules": joules(begun["counters_mj"], read_counters(list(begun["counters_mj"])))}
    except NotMeasured as error:
        return {"note": str(error)}


def summarize(
    attempts: Sequence[Mapping[str, Any]], status: Mapping[str, Any], rows: Sequence[Row], dropped: Sequence[Row]
) -> dict[str, Any]:
    """What the card says of a run that has ended, beside what was known when it began."""
    last = attempts[-1]
    return {
        "config": {"path": "config.yaml", "sha256": last["config_sha256"]},
        "versions": last["versions"],
        "machine": last["machine"],
        "ending": {key: status.get(key) for key in ("state", "reason", "step", "early_stop", "cause", "exit_code")},
        "validation": status.get("validation", []),
        "resumes": len(attempts) - 1,
        "levels": status.get("levels_played"),
        "counts": count(rows),
        "seconds": {
            "attempts": total([attempt.get("seconds") for attempt in attempts]),
            "steps": sums_below(rows, names.TIMING).get("step", 0.0),
            "parts": seconds_by_part(rows),
            "repeated": sums_below(dropped, names.TIMING).get("step", 0.0),
        },
        "energy_j": total([attempt["energy"].get("joules") for attempt in attempts]),
    }


def count(rows: Sequence[Row]) -> dict[str, Any]:
    """What training met: None where a step did not log it, being of an earlier version. A group plays one level.

    `faults` and `truncations` count episodes and replies of training, as their metrics do; `validation` those of the
    validations.
    """
    steps = [row for row in rows if names.EMPTY_AFTER_FILTER in row]
    # One whose episodes were all lost to faults has no success.
    validations = [row for row in rows if names.below(names.VALIDATION, row)]
    sampled = names.join(names.VALIDATION, names.RESPONSE_TOKENS)

    def of(name: str) -> float | None:
        return total([row.get(name) for row in steps])

    groups = {
        "groups_trained": of(names.KEPT_COUNT),
        "groups_dropped": of(names.DROPPED_COUNT),
        "groups_incomplete": of(names.join(names.TRAIN, names.FAULTS, names.INCOMPLETE_GROUPS)),
    }
    return {
        "steps": len(steps),
        "steps_without_update": of(names.EMPTY_AFTER_FILTER),
        "episodes": of(names.join(names.TRAIN, names.EPISODES)),
        "groups": total(list(groups.values())),
        **groups,
        "tokens_sampled": of(names.join(names.TRAIN, names.RESPONSE_TOKENS)),
        "tokens_trained": of(names.TRAINED_TOKENS),
        "optimizer_steps_skipped": sum(
            sums_below(steps, role).get(names.SKIPPED_STEPS, 0.0) for role in (names.ACTOR, names.CRITIC)
        ),
        "faults": sums_below(steps, names.join(names.TRAIN, names.FAULTS)),
        "truncations": sums_below(steps, names.join(names.TRAIN, names.TRUNCATION)),
        "validation": {
            "runs": len(validations),
            "tokens_sampled": total([row.get(sampled) for row in validations]),
            "faults": sums_below(validations, names.join(names.VALIDATION, names.FAULTS)),
            "truncations": sums_below(validations, names.join(names.VALIDATION, names.TRUNCATION)),
        },
    }


def total(values: Sequence[float | None]) -> float | None:
    """[1, 2] -> 3; None where one is not known, which no sum hides: [1, None] -> None."""
    known = [found for value in values if (found := number(value)) is not None]
    return sum(known) if len(known) == len(values) else None


def sums_below(rows: Sequence[Row], prefix: str) -> dict[str, float]:
    """Sums of all metrics below a prefix: "train/faults" -> {"env_errors": 3, ...}"""
    sums: dict[str, float] = {}
    for row in rows:
        for name, value in names.below(prefix, row).items():
            sums[name] = sums.get(name, 0.0) + (number(value) or 0.0)
    return sums


def seconds_by_part(rows: Sequence[Row]) -> dict[str, float]:
    """Stage -> seconds over all steps, the longest first."""
    sums = sums_below(rows, names.TIMING)
    parts = {stage: round(seconds, 3) for stage, seconds in sums.items() if stage not in DERIVED}
    return dict(sorted(parts.items(), key=lambda part: -part[1]))


def _sha256(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
