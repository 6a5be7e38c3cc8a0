"""Variants of a fleet beside each other: the same seeds, and the differences between them, seed by seed."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, sqrt
from statistics import fmean, stdev
from typing import Any

from attrs import frozen

from groupcoord.sim.reports.measures import DONE, MEASURES, UNOWNED, Measure
from groupcoord.sim.reports.runs import FleetReport, Run

_T_95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Student's t for 95 % of both sides, for 1 to 30 degrees of freedom; beyond, 1.96 and a little more."""


@frozen
class Difference:
    """By how much a measure is another in one variant than in the first.

    Attributes:
        measure: which.
        seeds: in how many seeds both have values.
        mean: of the differences of the seeds' means; above 0: it is more than in the first variant.
        least, most: the bounds of its 95 % confidence interval; None for fewer than two seeds.
    """

    measure: Measure
    seeds: int
    mean: float
    least: float | None
    most: float | None

    @property
    def is_clear(self) -> bool:
        """The interval has 0 outside."""
        return self.least is not None and self.most is not None and (self.least > 0 or self.most < 0)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON's values."""
        bounds = [None if bound is None else round(bound, 3) for bound in (self.least, self.most)]
        return {"seeds": self.seeds, "mean": round(self.mean, 3), "confidence_interval_95": bounds}


@frozen
class Verdict:
    """Which variant costs least: by how long partitions are without owner, or records take until they are done.

    Attributes:
        best: the variant with the least.
        other: what it is compared with: the first variant, or the next best if the first one is the best.
        difference: of the best from the other one.
        equals: the variants whose difference from the best isn't clear, the other one left out.
    """

    best: FleetReport
    other: FleetReport
    difference: Difference
    equals: tuple[FleetReport, ...]


@frozen
class Comparison:
    """Reports of variants that ran with the same seeds; the first one is what the others are compared with."""

    reports: tuple[FleetReport, ...]

    def differences(self, report: FleetReport) -> list[Difference]:
        """Return the differences of a variant from the first one, of the measures that both have values of."""
        found = (difference_of(measure, report, self.reports[0]) for measure in MEASURES)
        return [difference for difference in found if difference is not None]

    def verdict(self) -> Verdict | None:
        """Return which variant costs least; None if no seed tells it of two of them."""
        has_owners = any(report.values(UNOWNED.key) for report in self.reports)
        measure = UNOWNED if has_owners else DONE
        means = [fmean(_means(report.runs, measure.key).values() or (inf,)) for report in self.reports]
        ranked = [self.reports[place] for place in sorted(range(len(means)), key=means.__getitem__)]
        best, *others = ranked
        other = others[0] if best is self.reports[0] else self.reports[0]
        found = {report.variant: difference_of(measure, best, report) for report in others}
        difference = found[other.variant]
        if difference is None:
            return None
        unclear = {variant for variant, each in found.items() if each is not None and not each.is_clear}
        equals = tuple(report for report in others if report is not other and report.variant in unclear)
        return Verdict(best, other, difference, equals)

    def to_json(self) -> dict[str, Any]:
        """Return all reports, and the differences, as JSON's values."""
        first, *others = self.reports
        differences = {
            report.variant: {each.measure.key: each.to_json() for each in self.differences(report)} for report in others
        }
        variants = {report.variant: report.to_json() for report in self.reports}
        return {"compared_with": first.variant, "variants": variants, "differences": differences}


def difference_of(measure: Measure, report: FleetReport, base: FleetReport) -> Difference | None:
    """Return by how much a measure is another than in ``base``; None if no seed has values of both."""
    before = _means(base.runs, measure.key)
    own = _means(report.runs, measure.key)
    differences = [own[seed] - before[seed] for seed in sorted(own.keys() & before.keys())]
    if not differences:
        return None
    least, most = _interval(differences)
    return Difference(measure, len(differences), fmean(differences), least, most)


def _means(runs: Sequence[Run], key: str) -> dict[int, float]:
    values = {run.seed: [value for group in run.groups for value in group.values.get(key, ())] for run in runs}
    return {seed: fmean(found) for seed, found in values.items() if found}


def _interval(differences: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the 95 % confidence interval of their mean (Student's t, paired)."""
    freedom = len(differences) - 1
    if not freedom:
        return None, None
    t = _T_95[freedom - 1] if freedom <= len(_T_95) else 1.96 + 2.4 / freedom
    mean, half = fmean(differences), t * stdev(differences) / sqrt(len(differences))
    return mean - half, mean + half
