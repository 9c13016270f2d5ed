"""From numbers to a verdict: the few rules that the claims' files are written with.

All of them ask whether a quantity, one number for each seed, lies above a bound. It holds where the whole 95 % interval
of its mean does; it does not hold where the whole interval lies below the bound and what is worth finding beyond it; in
between it cannot be told, and the number of seeds that would tell is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from ragen.algorithms.comparison import ALPHA, Gap, holm, paired_gap, seeds_needed
from ragen.algorithms.statistics import Estimate, proportion_interval, student_interval, unknown_interval
from ragen.reproduce.claim import Evidence, Finding, Point, Verdict
from ragen.studies.conditions import Curve

WORTH_FINDING = 0.05
"""The difference of success that matters, unless a claim names another one."""
FEWEST_SEEDS = 3
"""With fewer nothing is told apart: Student's interval of two runs is thirteen deviations wide."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ruling:
    """What one comparison says."""

    verdict: Verdict
    estimate: Estimate
    """What was compared with the bound."""
    seeds_needed: int | None = None


def above(values: Sequence[float], bound: float, *, margin: float = 0.0) -> Ruling:
    """Whether the mean over the seeds lies above a bound; `margin` is what is worth finding beyond it.

    [0.2, 0.3, 0.4] above 0 -> 0.3 [0.05, 0.55]: holds
    """
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return Ruling(verdict="cannot tell", estimate=unknown_interval(math.nan))
    gap = paired_gap([value - bound for value in known])
    estimate = unknown_interval(fmean(known)) if math.isnan(gap.estimate.low) else student_interval(known)
    if len(known) < FEWEST_SEEDS:  # more seeds help where there were too few, not where too few had the number
        needed = FEWEST_SEEDS if len(values) < FEWEST_SEEDS else None
        return Ruling(verdict="cannot tell", estimate=estimate, seeds_needed=needed)
    return ruling_of(gap, gap.p, margin, estimate)


def below(values: Sequence[float], bound: float) -> Ruling:
    """The same from the other side: [1.1, 1.2, 1.1] below 1.3 -> holds"""
    ruling = above([-value for value in values], -bound)
    mean, low, high = (0.0 - end for end in (ruling.estimate.mean, ruling.estimate.high, ruling.estimate.low))
    return Ruling(verdict=ruling.verdict, estimate=Estimate(mean, low, high), seeds_needed=ruling.seeds_needed)


def ruling_of(gap: Gap, p: float, margin: float, estimate: Estimate) -> Ruling:
    """A difference that should be above zero; `p` may be corrected for others."""
    mean, high = gap.estimate.mean, gap.estimate.high
    if gap.num_seeds < FEWEST_SEEDS:
        return Ruling(verdict="cannot tell", estimate=estimate, seeds_needed=FEWEST_SEEDS)
    if math.isnan(p):  # seeds that agree to the last digit have no interval; the number itself decides
        return Ruling(verdict="holds" if mean > 0 else "does not hold", estimate=estimate)
    if p < ALPHA and mean > 0:
        return Ruling(verdict="holds", estimate=estimate)
    if high < margin or (p < ALPHA and mean < 0):
        return Ruling(verdict="does not hold", estimate=estimate)
    worth = margin or abs(mean)
    return Ruling(
        verdict="cannot tell", estimate=estimate, seeds_needed=seeds_needed(gap.std, worth) if worth else None
    )


def share_above(num: int, total: int, bound: float) -> Ruling:
    """Whether a share of the runs lies above a bound, by Wilson's interval: 5 of 5 above one half -> holds"""
    if not total:
        return Ruling(verdict="cannot tell", estimate=unknown_interval(math.nan))
    estimate = proportion_interval(num, total)
    verdict: Verdict = "holds" if estimate.low > bound else "does not hold" if estimate.high < bound else "cannot tell"
    away = abs(estimate.mean - bound)
    deviation = math.sqrt(estimate.mean * (1 - estimate.mean) or bound * (1 - bound))  # none or all of a few vary, too
    needed = seeds_needed(deviation, away) if away else None
    return Ruling(verdict=verdict, estimate=estimate, seeds_needed=needed if verdict == "cannot tell" else None)


def better(
    evidence: Evidence, arms: Sequence[str], baseline: str, measure: Callable[[Curve], float], *, margin: float
) -> dict[str, Ruling]:
    """Each arm against the baseline by pairs of seeds, corrected by Holm."""
    gaps = [evidence.paired(arm, baseline, measure) for arm in arms]
    corrected = holm([gap.p for gap in gaps])
    return {arm: ruling_of(gap, p, margin, gap.estimate) for arm, gap, p in zip(arms, gaps, corrected, strict=True)}


def gain(evidence: Evidence, one: str, other: str, *, bound: float = 0.0, margin: float = WORTH_FINDING) -> Ruling:
    """Whether the last validation of one arm lies above that of another, by pairs of seeds."""
    return above([row[one] - row[other] for row in by_seed(evidence, final)], bound, margin=margin)


def judge_gain(
    one: str, other: str, what: str, published: Mapping[str, float | None], **bounds: float
) -> Callable[[Evidence], Finding]:
    """The judge of a claim that is one `gain`; `what` says whose success is taken from whose."""

    def judge(evidence: Evidence) -> Finding:
        ruling = gain(evidence, one, other, **bounds)
        return finding(f"{what}: {ruling.estimate:+.3f}", arm_points(evidence, published), ruling)

    return judge


def all_of(*rulings: Ruling) -> Verdict:
    """It holds where every part does; one that does not is enough for it not to."""
    verdicts = [ruling.verdict for ruling in rulings]
    if "does not hold" in verdicts:
        return "does not hold"
    return "holds" if set(verdicts) == {"holds"} else "cannot tell"


def any_of(*rulings: Ruling) -> Verdict:
    """It holds where one part does; it does not where none can."""
    verdicts = [ruling.verdict for ruling in rulings]
    if "holds" in verdicts:
        return "holds"
    return "does not hold" if set(verdicts) == {"does not hold"} else "cannot tell"


def finding(ours: str, points: Iterable[Point], *rulings: Ruling, of: Callable[..., Verdict] = all_of) -> Finding:
    """What a claim's rulings say together, with its numbers in a sentence and those of its figure."""
    seeds = max((ruling.seeds_needed for ruling in rulings if ruling.seeds_needed), default=None)
    return Finding(verdict=of(*rulings), ours=ours, points=tuple(points), seeds_needed=seeds)


def by_seed(evidence: Evidence, measure: Callable[[Curve], float]) -> list[dict[str, float]]:
    """Arm -> its number, for every seed that all arms have."""
    columns = {name: {each.run.seed: measure(each) for each in evidence.curves(name)} for name in evidence.arms}
    seeds = set.intersection(*(set(column) for column in columns.values()))
    return [{name: column[seed] for name, column in columns.items()} for seed in sorted(seeds)]


# --- of a curve


def final(curve: Curve) -> float:
    return curve.final


def mean_success(curve: Curve) -> float:
    """Mean success over the training: the area under the curve, over its width."""
    return curve.area


def fall(curve: Curve) -> float:
    """From the best validation to the last one."""
    return curve.best - curve.final


def describe(rulings: dict[str, Ruling]) -> str:
    """filtered +0.050 [-0.012, +0.112], ..."""
    return ", ".join(f"{name} {ruling.estimate:+.3f}" for name, ruling in rulings.items())


def share(values: Sequence[float]) -> Estimate:
    """The mean of shares over the seeds, with an interval that stays between 0 and 1."""
    return student_interval(values).as_share()


def arm_points(
    evidence: Evidence, published: Mapping[str, float | None], measure: Callable[[Curve], float] = final
) -> tuple[Point, ...]:
    """Arms with their published numbers: a share of each, over all its seeds."""
    return tuple(
        Point(label=name, ours=share([measure(curve) for curve in evidence.curves(name)]), published=number)
        for name, number in published.items()
    )


def table_points(table: Sequence[Mapping[str, float]], published: Mapping[str, float | None]) -> tuple[Point, ...]:
    """The same over the seeds that all arms have, as `by_seed` gives them."""
    return tuple(
        Point(label=name, ours=share([row[name] for row in table]), published=number)
        for name, number in published.items()
    )
