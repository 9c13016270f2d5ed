"""The card of a run as a person reads it: sections of names and texts, in card.md and on the page of `ragen view`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragen.tracking.console import counted, duration, markdown_table

UNKNOWN = "not known"
NOT_MEASURED = "not measured"
LONGEST_PARTS = 12
"""Parts of the time that are listed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """A part of the page."""

    title: str
    rows: list[tuple[str, str]]
    """Name and text."""


def to_markdown(card: Mapping[str, Any]) -> str:
    """card.md"""
    parts = [f"# Run card: {card['run']['name']}"]
    for section in sections(card):
        parts += [f"## {section.title}", markdown_table(("", ""), section.rows)]
    return "\n\n".join(parts) + "\n"


def sections(card: Mapping[str, Any]) -> list[Section]:
    """The page of a card; of one whose run has not ended, what is known by then."""
    made = [what(card)]
    if "ending" in card:
        trained = [training(card), faults(card)] if card["counts"]["steps"] else []
        made = [ending(card), *made, *trained, cost(card)]
    return [*made, surroundings(card), *attempts(card)]


def ending(card: Mapping[str, Any]) -> Section:
    found, total = card["ending"], card["run"]["total_steps"]
    rows = [
        ("state", str(found["state"]).replace("_", " ")),
        ("step", f"{_number(found['step'])} of {_number(total)}"),
        ("reason", str(found["reason"] or "")),
        ("early stop", str(found["early_stop"] or "none")),
        ("its cause", str(found["cause"] or "")),
        ("exit code", _number(found["exit_code"])),
    ]
    for validations in card["validation"]:
        said = [f"{_share(v)} at step {v['step']}" for v in validations]
        rows.append((f"validation, {validations[0]['tag']}", " -> ".join(said)))
    return Section(title="How it ended", rows=[row for row in rows if row[1]])


def what(card: Mapping[str, Any]) -> Section:
    run, last = card["run"], card["attempts"][-1]
    rows = [
        ("project", run["project"]),
        ("model", run["model"]),
        ("estimator", run["estimator"]),
        ("environments", ", ".join(run["environments"])),
        ("seeds", f"training from {card['seeds']['train']} on, validation from {card['seeds']['val']} on"),
        ("configuration", f"config.yaml, SHA-256 {last['config_sha256'] or UNKNOWN}"),
    ]
    return Section(title="What was run", rows=[(name, str(text)) for name, text in rows])


def training(card: Mapping[str, Any]) -> Section:
    counts = card["counts"]
    rows = [
        ("steps", _number(counts.get("steps"))),
        ("steps without an update", _number(counts.get("steps_without_update"))),
        ("optimizer steps skipped", _number(counts.get("optimizer_steps_skipped"))),
        ("episodes", _number(counts.get("episodes"))),
        ("levels played, one a group", _number(counts.get("groups"))),
        ("different levels", f"{_number(card['levels'])}, those that the model knew before included"),
        ("groups trained on", _number(counts.get("groups_trained"))),
        ("groups dropped by the filter", _number(counts.get("groups_dropped"))),
        ("groups lost to faults", _number(counts.get("groups_incomplete"))),
        ("tokens sampled", _number(counts.get("tokens_sampled"))),
        ("tokens sampled in validations", _number(counts["validation"].get("tokens_sampled"))),
        ("tokens of trained batches", _number(counts.get("tokens_trained"))),
    ]
    return Section(title="Training", rows=rows)


def faults(card: Mapping[str, Any]) -> Section:
    counts = card["counts"]
    rows = []
    for title, source in (("training", counts), ("validation", counts["validation"])):
        for kind in ("faults", "truncations"):
            rows.append((f"{kind}, {title}", _counted(source[kind])))
    return Section(title="Faults and truncations", rows=rows)


def cost(card: Mapping[str, Any]) -> Section:
    seconds, parts = card["seconds"], list(card["seconds"]["parts"].items())
    rows = [
        ("time, start to end", _duration(seconds["attempts"])),
        *([("of it, steps", _duration(seconds["steps"]))] if parts else []),
        ("steps that were done again", _duration(seconds["repeated"])),
        *((f"part: {name}", _duration(value)) for name, value in parts[:LONGEST_PARTS]),
        ("energy", energy(card)),
    ]
    if len(parts) > LONGEST_PARTS:
        rows.insert(-1, ("other parts", _duration(sum(value for _, value in parts[LONGEST_PARTS:]))))
    return Section(title="Time and energy (parts may hold one another)", rows=rows)


def energy(card: Mapping[str, Any]) -> str:
    """12.5 kJ of the whole cards; why it is not known, else."""
    drawn = card["energy_j"]
    if drawn is not None:
        return f"{drawn / 1000:,.1f} kJ ({drawn / 3.6e6:.3f} kWh), all that its GPUs drew, whoever used them"
    notes = [str(each["energy"]["note"]) for each in card["attempts"] if "note" in each["energy"]]
    some = f" in {len(notes)} of {len(card['attempts'])} attempts" if len(notes) < len(card["attempts"]) else ""
    return f"{NOT_MEASURED}{some}: {'; '.join(dict.fromkeys(notes))}"


def surroundings(card: Mapping[str, Any]) -> Section:
    last = card["attempts"][-1]
    machine, versions = last["machine"], last["versions"]
    rows = [
        *((name, str(version or "none")) for name, version in versions.items()),
        ("system", machine["system"]),
        ("processor", f"{machine['processor']}, {machine['usable_cores']} usable cores of {machine['cores']}"),
        ("memory", f"{machine['memory_gib']} GiB"),
        ("GPUs", ", ".join(machine["gpus"]) or "none"),
    ]
    if machine["machines"] > 1:
        rows.append(("machines", f"{machine['machines']}; the first is described"))
    return Section(title="Versions and machine", rows=rows)


def attempts(card: Mapping[str, Any]) -> list[Section]:
    """One row per process that worked on the run; none where it was one, from the first step on."""
    found: Sequence[Mapping[str, Any]] = card["attempts"]
    rows = [(str(number), _attempt(each, found[-1])) for number, each in enumerate(found, start=1)]
    if first := found[0]["from_step"]:
        rows.insert(0, ("before", f"steps 1 to {first} are of another run, or of a version without cards"))
    return [Section(title=f"Attempts, {counted(len(found) - 1, 'resume')}", rows=rows)] if len(rows) > 1 else []


def _attempt(attempt: Mapping[str, Any], last: Mapping[str, Any]) -> str:
    """finished, steps 5 to 10, 2 min 3 s, on other versions: ..."""
    steps = f"from step {attempt['from_step']}" + (f" to {attempt['to_step']}" if attempt.get("to_step") else "")
    words = [str(attempt["state"]).replace("_", " "), steps, _duration(attempt.get("seconds"))]
    for name in ("versions", "machine"):
        other = {key: value for key, value in attempt[name].items() if value != last[name].get(key)}
        words += [f"{key} was {value}" for key, value in other.items()]
    if attempt["config_sha256"] != last["config_sha256"]:
        words.append(f"its config.yaml had SHA-256 {attempt['config_sha256']}")
    return ", ".join(words)


def _number(value: float | None) -> str:
    """1234567.0 -> 1,234,567"""
    return UNKNOWN if value is None else f"{value:,.0f}" if value >= 10_000 else f"{value:g}"


def _counted(counts: Mapping[str, float]) -> str:
    """{"env_errors": 2.0, "env_timeouts": 0.0} -> env errors 2"""
    said = [f"{name.replace('_', ' ')} {_number(value)}" for name, value in counts.items() if value]
    return ", ".join(said) or "none"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return UNKNOWN
    return duration(seconds) if seconds >= 10 else f"{seconds:.1f} s"


def _share(validation: Mapping[str, Any]) -> str:
    """0.50 [0.40, 0.60]; the interval where there is one."""
    mean, low, high = (validation.get(key) for key in ("mean", "low", "high"))
    ends = "" if low is None or high is None else f" [{low:.2f}, {high:.2f}]"
    return UNKNOWN if mean is None else f"{mean:.2f}{ends}"
