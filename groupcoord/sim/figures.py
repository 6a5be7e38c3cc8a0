"""Figures over many seeds: distributions of what users ask about."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from attrs import frozen

PERCENTILES = (50, 90, 99)


@frozen
class Measure:
    """Something that is measured.

    Attributes:
        key: its name in JSON, with the unit.
        title: its name for people.
        unit: ``ms`` or empty for counts.
        of_what: what one value stands for.
    """

    key: str
    title: str
    unit: str
    of_what: str


MEASURES = (
    Measure("rebalances", "rebalances", "", "one for each group and seed"),
    Measure("rebalance_duration_ms", "rebalance", "ms", "one for each rebalance"),
    Measure("unowned_ms", "without owner", "ms", "one for each partition, group and seed"),
    Measure("moves", "moved to another member", "", "one for each partition, group and seed"),
    Measure("duplicate_ms", "processed again", "ms", "one for each partition, group and seed"),
    Measure("longest_duplicate_ms", "processed again at once", "ms", "one for each partition, group and seed"),
)


@frozen
class Distribution:
    """Many values in a few numbers.

    Attributes:
        count: how many there are.
        least, mean, most: of them.
        percentiles: percentage → the value that so many are not above.
    """

    count: int
    least: float
    mean: float
    most: float
    percentiles: dict[int, float]

    @classmethod
    def of(cls, values: Sequence[float]) -> Distribution:
        """Return the distribution of values; all zero if there are none."""
        if not values:
            return cls(0, 0, 0, 0, dict.fromkeys(PERCENTILES, 0))
        ordered = sorted(values)
        percentiles = {p: ordered[max(0, ceil(len(ordered) * p / 100) - 1)] for p in PERCENTILES}
        return cls(len(ordered), ordered[0], sum(ordered) / len(ordered), ordered[-1], percentiles)

    def to_json(self) -> dict[str, float]:
        """Return it as JSON's values."""
        return {
            "count": self.count,
            "min": self.least,
            "mean": round(self.mean, 3),
            **{f"p{p}": value for p, value in self.percentiles.items()},
            "max": self.most,
        }


def histogram(values: Sequence[float], bin_count: int = 40) -> list[tuple[float, float, int]]:
    """Return (from, to, how many) of bins of equal width; the last one includes its end. Nothing without values."""
    if not values:
        return []
    least, most = min(values), max(values)
    width = (most - least) / bin_count
    if not width:
        return [(least, most, len(values))]
    counts = [0] * bin_count
    for value in values:
        counts[min(int((value - least) / width), bin_count - 1)] += 1
    return [(least + place * width, least + (place + 1) * width, count) for place, count in enumerate(counts)]
