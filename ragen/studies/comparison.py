"""Values against one of them: differences by pairs of seeds, by levels, and what they allow to say.

Three measures stand beside each other: the last validation, the best one, and the mean over the training. Runs that
collapsed are no part of them; where there are some, no interval is given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from ragen.algorithms.comparison import ALPHA, Gap, holm, paired_gap, seeds_needed, unpaired_gap
from ragen.algorithms.statistics import Estimate, mean_interval, unknown_interval
from ragen.studies.conditions import Condition, Curve
from ragen.tracking.episodes import find_episodes, read_episodes

MEASURES = ("final", "best", "area")
"""Of a curve: its last validation, its best one, its mean height."""
SMALLEST = 0.05
"""The difference of success that is worth finding, unless one says otherwise."""
Pair = tuple[Curve, Curve]
Level = tuple[str, int]
"""Tag and seed of a validation level."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """A value against the baseline."""

    value: str
    baseline: str
    gaps: Mapping[str, Gap]
    """Measure -> value minus baseline."""
    over_levels: Estimate | None
    """The last validation again, with the interval over the levels that both were validated on: what these runs are
    known to. None where they were validated on other levels, or their episodes are not there."""
    corrected: Mapping[str, float]
    """Measure -> p, corrected by Holm for all values that are compared."""
    has_collapse: bool
    """Whether a run of either collapsed."""

    def verdict(self, smallest: float) -> str:
        """What the last validation says."""
        if self.has_collapse:
            return "no verdict on the mean: runs collapsed"
        return verdict(self.gaps["final"], self.corrected["final"], smallest)


def verdict(gap: Gap, p: float, smallest: float = SMALLEST) -> str:
    """higher | lower | cannot tell, with the seeds that a difference of `smallest` needs; p is corrected already."""
    if math.isnan(p):
        return "cannot tell from one seed" if gap.num_seeds < 2 else "cannot tell: the seeds do not differ"
    if p < ALPHA:
        return "higher" if gap.estimate.mean > 0 else "lower"
    more = seeds_needed(gap.std, smallest) - gap.num_seeds
    if more > 0:
        return f"cannot tell: about {more} more seeds for a difference of {smallest:g}"
    return f"no difference found; {gap.num_seeds} seeds find one of {smallest:g} in four of five studies"


def compare_all(conditions: Sequence[Condition], baseline: Condition) -> list[Comparison]:
    """All others against the baseline; what has no run left on either side is left out."""
    compared = (compare(condition, baseline) for condition in conditions if condition is not baseline)
    found = [comparison for comparison in compared if comparison is not None]
    by_measure = {name: holm([each.gaps[name].p for each in found]) for name in MEASURES}
    return [
        replace(each, corrected={name: by_measure[name][index] for name in MEASURES})
        for index, each in enumerate(found)
    ]


def compare(condition: Condition, baseline: Condition) -> Comparison | None:
    """One value against the baseline, not corrected for others."""
    if not condition.survivors or not baseline.survivors:
        return None
    pairs, has_collapse = pair_seeds(condition, baseline), bool(condition.collapsed or baseline.collapsed)
    gaps = {name: gap_of(condition, baseline, pairs, name) for name in MEASURES}
    if has_collapse:
        gaps = {name: without_interval(gap) for name, gap in gaps.items()}
    return Comparison(
        value=condition.value,
        baseline=baseline.value,
        gaps=gaps,
        over_levels=None if has_collapse else gap_over_levels(pairs),
        corrected={name: gap.p for name, gap in gaps.items()},
        has_collapse=has_collapse,
    )


def pair_seeds(one: Condition, other: Condition) -> list[Pair]:
    """The runs of both that have a seed in common, and did not collapse."""
    mine, theirs = ({curve.run.seed: curve for curve in each.survivors} for each in (one, other))
    return [(mine[seed], theirs[seed]) for seed in sorted(mine.keys() & theirs.keys())]


def gap_of(one: Condition, other: Condition, pairs: Sequence[Pair], measure: str) -> Gap:
    """The difference by pairs; of all runs where no seed is in common."""
    if pairs:
        return paired_gap([getattr(mine, measure) - getattr(theirs, measure) for mine, theirs in pairs])
    values = [[getattr(curve, measure) for curve in each.survivors] for each in (one, other)]
    return unpaired_gap(*values)


def without_interval(gap: Gap) -> Gap:
    """What is left of a difference where runs collapsed: its mean, among the others."""
    return replace(gap, estimate=unknown_interval(gap.estimate.mean), p=math.nan, std=math.nan)


def paired_difference(one: Condition, other: Condition) -> Estimate | None:
    """The last validation of one minus that of another by pairs of seeds; None where there is no pair."""
    pairs = pair_seeds(one, other)
    if not pairs:
        return None
    gap = gap_of(one, other, pairs, "final")
    return (without_interval(gap) if one.collapsed or other.collapsed else gap).estimate


def gap_over_levels(pairs: Sequence[Pair]) -> Estimate | None:
    """The difference in the last validation, level by level, with the interval over levels; all pairs count alike.

    One pair, success 1, 0 on two levels against 0, 0 -> 0.5, from the differences [1, 0]
    """
    differences: list[float] = []
    clusters: list[Level] = []
    for mine, theirs in pairs:
        one, other = success_by_level(mine), success_by_level(theirs)
        if not one or one.keys() != other.keys():
            return None
        differences += [one[level] - other[level] for level in one]
        clusters += one
    return mean_interval(differences, clusters) if differences else None


def success_by_level(curve: Curve) -> dict[Level, float]:
    """Tag and seed -> share of solved episodes in the last validation; empty where its episodes were not kept."""
    path = find_episodes(curve.run.run_dir, f"val_step_{curve.steps[-1]}")
    found: dict[Level, list[bool]] = {}
    for episode in read_episodes(path) if path else ():
        found.setdefault((episode.tag, episode.seed), []).append(episode.is_success)
    return {level: fmean(flags) for level, flags in found.items()}


# --- as a table

COLUMNS = ("final", "p (Holm)", "final, over levels", "best", "mean over training", "verdict")


def to_row(comparison: Comparison, smallest: float = SMALLEST) -> list[str]:
    """The differences of a value as cells: +0.050 [-0.012, +0.112], 0.083, ..."""
    final, best, area = (comparison.gaps[name].estimate for name in MEASURES)
    p, over_levels = comparison.corrected["final"], comparison.over_levels
    return [
        f"{final:+.3f}",
        p_text(p),
        "-" if over_levels is None else f"{over_levels:+.3f}",
        f"{best:+.3f}",
        f"{area:+.3f}",
        comparison.verdict(smallest),
    ]


def p_text(p: float) -> str:
    return "-" if math.isnan(p) else f"{p:.3f}"


def how_compared(comparisons: Sequence[Comparison]) -> str:
    """What stands behind the differences, in a few sentences."""
    kinds = []
    gaps = [comparison.gaps["final"] for comparison in comparisons]
    if pairs := sorted({gap.num_seeds for gap in gaps if gap.is_paired}):
        kinds.append(f"by pairs of equal seeds ({' or '.join(map(str, pairs))})")
    if any(not gap.is_paired for gap in gaps):
        kinds.append("between runs without seeds in common, after Welch")
    return (
        f"Differences are taken {', or '.join(kinds)}, with Student's 95 % interval over the seeds; p is two-sided and "
        "corrected by Holm for the number of values. Over levels: how well these runs are known, level by level; it "
        "says nothing of other seeds."
    )
