"""Figures over many seeds: distributions of what users ask about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil

from attrs import frozen

PERCENTILES = (50, 90, 99)


@frozen
class Measure:
    """Something that is measured. Less of it is better, whatever it is.

    Attributes:
        key: its name in JSON, with the unit.
        title: its name for people.
        unit: ``ms``, or what is counted.
        each: what there is one value for.
        of_what: from when until when it is measured, or what is counted.
    """

    key: str
    title: str
    unit: str
    each: str
    of_what: str


UNOWNED = Measure(
    "unowned_ms",
    "without owner",
    "ms",
    "partition",
    "How long no consumer had a partition, from the first consumer's start on, all in all.",
)
"""What consumers are there for is that every partition is worked on: by this, ways to do so are compared first."""

DONE = Measure("done_ms", "done after", "ms", "record", "How long after it was written a share group has accepted it.")
"""By this they are compared where there are no consumers, but workers that share records."""

MEASURES = (
    Measure("rebalances", "rebalances", "rebalances", "group", "How many there were."),
    Measure("rebalance_duration_ms", "time of a rebalance", "ms", "rebalance", "How long it took."),
    UNOWNED,
    Measure(
        "most_unowned", "at once without owner", "partitions", "group", "How many partitions had none at the same time."
    ),
    Measure(
        "furthest_behind_ms",
        "furthest behind",
        "ms",
        "partition",
        "How long ago what a consumer began with, when it was given the partition, had been written: at most. "
        "What is processed again is part of that.",
    ),
    Measure(
        "catch_up_ms",
        "caught up after",
        "ms",
        "loss of an owner",
        "How long it took from then until what had been written to the partition meanwhile was done.",
    ),
    Measure("moves", "moved", "times", "partition", "How often it went to another consumer than before."),
    Measure(
        "duplicate_ms",
        "processed again",
        "ms",
        "partition",
        "How much was processed a second time, as the time in which it was written, all in all.",
    ),
    Measure(
        "longest_duplicate_ms",
        "most processed again",
        "ms",
        "partition",
        "The most of that which one change of owners caused.",
    ),
    Measure("requests", "requests", "requests", "group", "How many its consumers sent."),
    Measure(
        "group_records", "records", "records", "group", "How many were written to the log about it, its offsets apart."
    ),
    Measure(
        "offsets_wait_ms",
        "waited for offsets",
        "ms",
        "partition given",
        "How long the consumer waited for the committed offset; it isn't told while a transaction with offsets of "
        "that partition is open.",
    ),
    Measure(
        "transaction_open_ms",
        "transaction open",
        "ms",
        "transaction",
        "How long it took, from its begin until the group's coordinator had its marker.",
    ),
    Measure(
        "offsets_late_ms",
        "offsets visible late",
        "ms",
        "committed transaction",
        "How long after the decision to commit the group's coordinator had its marker, and consumers its offsets.",
    ),
    DONE,
    Measure(
        "lock_wait_ms",
        "waited for a lock",
        "ms",
        "record of a dead worker",
        "How long it took until another one got it.",
    ),
    Measure("redeliveries", "delivered again", "records", "share group", "How many were delivered more than once."),
    Measure("archived", "given up", "records", "share group", "How many were rejected, or delivered too often."),
)


@frozen
class Scale:
    """The one unit in which all values of a row stand.

    Attributes:
        name: of the unit, or what is counted.
        divisor: what a value is divided by.
    """

    name: str
    divisor: int

    def format(self, value: float) -> str:
        """Return a value without its unit, with as many decimals as matter."""
        scaled = value / self.divisor
        if self.divisor > 1 and scaled:
            return f"{scaled:,.{1 if abs(scaled) >= 1 else 2 if abs(scaled) >= 0.1 else 3}f}"
        return f"{scaled:,.0f}" if self.name == "ms" or float(scaled).is_integer() else f"{scaled:,.2f}"


def scale_of(measure: Measure, values: Iterable[float]) -> Scale:
    """Return the unit that fits the largest of the values of a measure."""
    if measure.unit != "ms":
        return Scale(measure.unit, 1)
    largest = max((abs(value) for value in values), default=0)
    return next((scale for limit_ms, scale in _SCALES if largest < limit_ms), Scale("h", 3_600_000))


_SCALES = ((1_000, Scale("ms", 1)), (600_000, Scale("s", 1_000)), (36_000_000, Scale("min", 60_000)))
"""What is below so many milliseconds is told like this."""


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
