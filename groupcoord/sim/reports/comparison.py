"""Variants of a fleet beside each other: the same seeds, and the differences between them, seed by seed."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import Any

from attrs import frozen

from groupcoord.sim.reports.measures import MEASURES, Measure
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
class Comparison:
    """Reports of variants that ran with the same seeds; the first one is what the others are compared with."""

    reports: tuple[FleetReport, ...]

    def differences(self, report: FleetReport) -> list[Difference]:
        """Return the differences of a variant from the first one, of the measures that both have values of."""
        found = (self._difference(measure, report) for measure in MEASURES)
        return [difference for difference in found if difference is not None]

    def to_json(self) -> dict[str, Any]:
        """Return all reports, and the differences, as JSON's values."""
        first, *others = self.reports
        differences = {
            report.variant: {each.measure.key: each.to_json() for each in self.differences(report)} for report in others
        }
        variants = {report.variant: report.to_json() for report in self.reports}
        return {"compared_with": first.variant, "variants": variants, "differences": differences}

    def _difference(self, measure: Measure, report: FleetReport) -> Difference | None:
        base = _means(self.reports[0].runs, measure.key)
        own = _means(report.runs, measure.key)
        differences = [own[seed] - base[seed] for seed in own.keys() & base.keys()]
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
