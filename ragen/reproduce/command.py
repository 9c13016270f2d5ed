"""What `ragen reproduce` does: list the claims, run what they need, judge, keep and show what came out."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ragen.config.strict import did_you_mean
from ragen.errors import ConfigError
from ragen.reproduce.claim import BUDGETS, SEEDS, Budget, Claim
from ragen.reproduce.claims import CLAIMS
from ragen.reproduce.page import page, section, verdict_text
from ragen.reproduce.plan import Job, distinct_runs, find_slots, plan_jobs, plan_table, plan_text
from ragen.reproduce.records import Record, make_record, read_records, record_path, write_record
from ragen.studies.outcomes import Outcome
from ragen.sweeps.driving.driver import drive
from ragen.sweeps.driving.results import missing, outcome_before
from ragen.tracking.rundir import write_atomic

ALL = "all"


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What was typed behind `ragen reproduce`."""

    claims: tuple[str, ...]
    budget: Budget
    seeds: int | None
    """None takes the number of the budget."""
    slots: int
    """Runs at a time on the CPU."""
    runs_per_gpu: int
    out: Path
    records: Path
    is_plan: bool
    is_report: bool
    """Judge by the runs that have ended, and start none."""
    changes: Mapping[str, str]
    """Overrides of every run."""
    command: str
    """All of it, as it was typed."""


def chosen_claims(names: Sequence[str]) -> list[Claim]:
    """C5, c05 or 5 is the claim 5; `all` is every one."""
    if ALL in names:
        return list(CLAIMS.values())
    found = []
    for name in names:
        number = name.upper().removeprefix("C").lstrip("0")
        if f"C{number}" not in CLAIMS:
            raise ConfigError(f"{name!r} is not a claim.{did_you_mean(name, CLAIMS)} See: ragen reproduce --list")
        found.append(CLAIMS[f"C{number}"])
    return list({claim.name: claim for claim in found}.values())


def list_claims(records_folder: Path) -> str:
    """Every claim in a few lines: sentence, source, published number, budgets and what is known so far."""
    records = read_records(records_folder)
    texts = []
    for claim in CLAIMS.values():
        states = [f"{budget}: {verdict_text(claim, budget, records)}" for budget in BUDGETS]
        texts.append(
            f"{claim.name:<4} {claim.sentence}\n"
            f"     {claim.source}. Published: {claim.published}\n"
            f"     {'; '.join(state for state in states if not state.endswith(': -'))}"
        )
    return "\n".join(texts)


def reproduce(options: Options) -> int:
    """Run what is missing, then print and keep what the runs say; the exit code."""
    budget = options.budget
    claims = testable(chosen_claims(options.claims), budget)
    if not claims:
        return 0
    jobs = plan_jobs(claims, budget, num_seeds=options.seeds or SEEDS[budget], out=options.out, changes=options.changes)
    slots = find_slots(budget, num_cpu_slots=options.slots, runs_per_gpu=options.runs_per_gpu)
    names = ", ".join(claim.name for claim in claims)
    print(f"{names} at `{budget}` ({BUDGETS[budget]}): {plan_text(jobs, budget, slots)}", flush=True)
    runs = distinct_runs(jobs)
    if options.is_plan:
        print(plan_table(jobs, budget))
        return 0
    if options.is_report:
        return report(jobs, options)
    if not slots:
        print(f"Nothing was run: `{budget}` needs a GPU, and there is none here. The same command runs it elsewhere.")
        return 0
    outcomes = (drive(runs, slots, title="reproduce", resume_with=f"`{options.command}`") or {}) if runs else {}
    return max([conclude(job, outcomes, options) for job in jobs], default=0)


def report(jobs: Sequence[Job], options: Options) -> int:
    """Judge by the seeds that have ended in every arm; nothing is started."""
    outcomes = {run.name: outcome_before(run) if run.is_done() else missing(run) for run in distinct_runs(jobs)}
    for job in jobs:
        if job.complete_seeds(outcomes):
            conclude(job, outcomes, options)
        else:
            print(f"{job.claim.name}: nothing to report, no seed has ended in every arm.")
    return 0


def testable(claims: Sequence[Claim], budget: Budget) -> list[Claim]:
    """Those that the budget can decide; why the others are left out is said once."""
    for claim in claims:
        if reason := claim.not_testable.get(budget):
            print(f"{claim.name}: not testable at `{budget}`. {reason}")
        elif budget not in claim.arms:
            known = ", ".join(claim.budgets) or "none"
            print(f"{claim.name}: has no `{budget}` budget. It has: {known}.")
    return [claim for claim in claims if budget in claim.arms and budget not in claim.not_testable]


def conclude(job: Job, outcomes: Mapping[str, Outcome], options: Options) -> int:
    """Judge a claim by its runs, keep the record and its figure; 1 where a run failed."""
    claim, budget = job.claim, job.budget
    failed = [run for runs in job.runs.values() for run in runs if outcomes[run.name].status == "fail"]
    if failed:
        print(
            f"{claim.name}: no verdict, {len(failed)} runs failed, the first: {failed[0].log}. "
            "The same command runs them again.",
            file=sys.stderr,
        )
        return 1
    assert claim.judge is not None, f"{claim.name} has arms and no judge"
    evidence = job.evidence(outcomes)
    finding = claim.judge(evidence)
    if finding.verdict != "cannot tell":
        finding = replace(finding, seeds_needed=None)
    arms = {name: arm.but(options.changes) for name, arm in claim.arms[budget].items()}
    record = make_record(claim, budget, evidence, finding, arms=arms, command=options.command)
    path = write_record(options.records, record)
    figure = draw_figure(claim, record, path)
    print(f"\n{section(claim, {(claim.name, budget): record}, figures=(), folder='')}\n\nRecord: {path}{figure}")
    return 0


def draw_figure(claim: Claim, record: Record, path: Path) -> str:
    """Beside the record; what to say of it. A figure of an earlier record is gone."""
    file = path.with_suffix(".png")
    file.unlink(missing_ok=True)
    if not record.finding.points:
        return ""
    if importlib.util.find_spec("matplotlib") is None:
        return ", without a figure: matplotlib is not installed; --page draws it from the record where it is"
    from ragen.reproduce.figure import draw

    return f", figure: {draw(claim, record, file)}"


def write_page(out: Path, folder: Path) -> None:
    """The page of all claims, and the figures that are missing."""
    records = read_records(folder)
    for (name, budget), record in records.items():
        path = record_path(folder, name, budget)
        if not path.with_suffix(".png").exists():
            draw_figure(CLAIMS[name], record, path)
    figures = [path.name for path in sorted(folder.glob("*.png"))]
    text = page(list(CLAIMS.values()), records, figures=figures, folder=folder.name)
    write_atomic(out, text)
    print(f"Page: {out}")
