"""docs/results/claims.md, from the claims' files and the records; the same text lists the claims on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ragen.reproduce.claim import BUDGETS, SEEDS, Budget, Claim
from ragen.reproduce.records import Record, record_path
from ragen.tracking.console import counted, duration, markdown_table

Records = Mapping[tuple[str, Budget], Record]

MANY_SEEDS = 1000
"""Beyond so many nobody asks for the number."""

HEAD = """# Published claims, settled by commands

Made by `ragen reproduce --page docs/results/claims.md --records docs/results/claims` from the claims' files
(`ragen/reproduce/claims`) and the records beside this page; [reproducing](../reproducing.md) says how to read and
repeat it. The rule of every claim was written before its runs. Intervals are 95 %, over seeds unless a sentence says
otherwise; a claim that cannot be told names the seeds that would tell it, with a chance of 80 %.
"""


def verdict_text(claim: Claim, budget: Budget, records: Records) -> str:
    """holds | does not hold | cannot tell (about 12 seeds) | not testable | not run | -"""
    if budget in claim.not_testable:
        return "not testable"
    if budget not in claim.arms:
        return "-"
    record = records.get((claim.name, budget))
    if record is None:
        return "not run"
    needed = record.finding.seeds_needed
    if not needed:
        return record.finding.verdict
    count = f"about {needed}" if needed <= MANY_SEEDS else f"more than {MANY_SEEDS}"
    return f"{record.finding.verdict} ({count} seeds would)"


def overview(claims: Sequence[Claim], records: Records) -> str:
    """A row for each claim."""
    rows = [
        [claim.name, claim.sentence, *(verdict_text(claim, budget, records) for budget in BUDGETS)] for claim in claims
    ]
    return markdown_table(("", "claim", *BUDGETS), rows)


def page(claims: Sequence[Claim], records: Records, *, figures: Sequence[str], folder: str) -> str:
    """The whole page; `figures` are the file names that lie in `folder`, beside the records."""
    counts = _counts(claims, records)
    parts = [HEAD, counts, overview(claims, records)]
    parts += [section(claim, records, figures=figures, folder=folder) for claim in claims]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _counts(claims: Sequence[Claim], records: Records) -> str:
    lines = []
    for budget, machine in BUDGETS.items():
        verdicts = [records[claim.name, budget].finding.verdict for claim in claims if (claim.name, budget) in records]
        told = ", ".join(f"{verdicts.count(each)} {each}" for each in dict.fromkeys(sorted(verdicts)))
        lines.append(f"- `{budget}` ({machine}): {told or 'nothing has been run'}.")
    return "\n".join(lines)


def section(claim: Claim, records: Records, *, figures: Sequence[str], folder: str) -> str:
    """What one claim says, by which rule it is judged, and what came out."""
    lines = [
        f"## {claim.name}: {claim.sentence}",
        "",
        f"*{claim.source}.* Published: {claim.published}",
        "",
        f"Rule: {claim.rule}",
    ]
    for budget in BUDGETS:
        if reason := claim.not_testable.get(budget):
            lines += ["", f"**{budget}: not testable.** {reason}"]
        elif record := records.get((claim.name, budget)):
            lines += ["", *found(claim, record)]
            figure = record_path(Path(), claim.name, budget).with_suffix(".png").name
            if figure in figures:
                lines += ["", f"![{claim.name}, published and ours]({folder}/{figure})"]
        elif budget in claim.arms:
            lines += ["", planned(claim, budget)]
    return "\n".join(lines)


def planned(claim: Claim, budget: Budget) -> str:
    """What a budget that has not been run would cost, without what other claims share."""
    arms, num_seeds = claim.arms[budget].values(), SEEDS[budget]
    seconds, gigabytes = (num_seeds * sum(each) for each in zip(*((arm.seconds, arm.gigabytes) for arm in arms)))
    return (
        f"**{budget}: not run.** {counted(len(arms), 'arm')}, {counted(num_seeds, 'seed')} each, "
        f"{num_seeds * sum(arm.steps for arm in arms)} steps: by estimate {duration(seconds)} one after another, "
        f"{gigabytes:.1f} GB. `ragen reproduce {claim.name} --budget {budget}`"
    )


def found(claim: Claim, record: Record) -> list[str]:
    """The lines of a record."""
    finding = record.finding
    verdict = verdict_text(claim, record.budget, {(claim.name, record.budget): record})
    lines = [f"**{record.budget}: {verdict}.** {finding.ours}"]
    points = [
        [point.label, "" if point.published is None else f"{point.published:.3g}", f"{point.ours:.3f}"]
        for point in finding.points
    ]
    if points:
        lines += ["", markdown_table((claim.measured, "published", "ours"), points)]
    lines += ["", f"`{record.command}`; {record.machine}; version {record.version}, {record.day}."]
    return lines
