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
        of_what: what one value stands for, and from when until when it is measured.
    """

    key: str
    title: str
    unit: str
    of_what: str


MEASURES = (
    Measure("rebalances", "rebalances", "", "How many: one value for each group and seed."),
    Measure("rebalance_duration_ms", "rebalance", "ms", "How long it took: one value for each rebalance."),
    Measure(
        "unowned_ms",
        "without owner",
        "ms",
        "How long no consumer had a partition, from the first consumer's start on, all in all: "
        "one value for each partition, group and seed.",
    ),
    Measure(
        "moves",
        "moved",
        "",
        "How often a partition went to another consumer than before: one value for each partition, group and seed.",
    ),
    Measure(
        "duplicate_ms",
        "processed again",
        "ms",
        "How much was processed a second time, as the time in which it was written, all in all: "
        "one value for each partition, group and seed.",
    ),
    Measure(
        "longest_duplicate_ms",
        "most processed again",
        "ms",
        "The most of that which one change of owners caused: one value for each partition, group and seed.",
    ),
    Measure("requests", "requests", "", "How many the group's consumers sent: one value for each group and seed."),
    Measure(
        "group_records",
        "records",
        "",
        "How many were written to the log about the group, its offsets apart: one value for each group and seed.",
    ),
    Measure(
        "offsets_wait_ms",
        "waited for offsets",
        "ms",
        "How long a consumer that was given a partition waited for the committed offset; it isn't told while a "
        "transaction with offsets of that partition is open: one value for each partition that a consumer was given.",
    ),
    Measure(
        "transaction_open_ms",
        "transaction open",
        "ms",
        "How long a transaction took, from its begin until the group's coordinator had its marker: "
        "one value for each transaction.",
    ),
    Measure(
        "offsets_late_ms",
        "offsets visible late",
        "ms",
        "How long after a transaction was committed the group's coordinator had its marker, and consumers its offsets: "
        "one value for each committed transaction.",
    ),
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


Bin = tuple[int, int, int]
"""The first value of a bin, its last one, and how many there are."""


def histogram(values: Sequence[int], bin_count_max: int = 40, bounds: tuple[int, int] | None = None) -> list[Bin]:
    """Return bins of equal width that cover all values; nothing without values.

    Args:
        values: what is counted.
        bin_count_max: so many bins at most.
        bounds: the least and the most of what the bins cover, if that is more than the values.
    """
    if not values:
        return []
    least, most = bounds or (min(values), max(values))
    width = ceil((most - least + 1) / bin_count_max)
    counts = [0] * ceil((most - least + 1) / width)
    for value in values:
        counts[(value - least) // width] += 1
    return [(least + place * width, least + (place + 1) * width - 1, count) for place, count in enumerate(counts)]
