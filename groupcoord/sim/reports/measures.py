"""Measures of simulated runs, declared once, their distributions over many seeds, and histograms as SVG."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import ceil

from attrs import frozen

from groupcoord.analysis.report.text import format_duration
from groupcoord.sim.actors.observations import ConsumerFigures, PartitionFigures, ShareRecords, TaskFigures

PERCENTILES = (50, 90, 99)


@frozen
class ConsumerGroup:
    """Values that the measures of a group of consumers are computed from."""

    figures: ConsumerFigures
    partitions: Sequence[PartitionFigures]
    requests: int
    records: int


@frozen
class Measure:
    """A figure of a run, with the functions that compute its values. Lower is better.

    Attributes:
        each: the object that has one value, such as a partition.
        of_consumers, of_tasks, of_shares: return the values of a group of consumers, of the tasks of a Kafka Streams
            application, and of a share group; None if they have none.
    """

    key: str
    title: str
    unit: str
    each: str
    of_what: str
    of_consumers: Callable[[ConsumerGroup], Iterable[int]] | None = None
    of_tasks: Callable[[Sequence[TaskFigures]], Iterable[int]] | None = None
    of_shares: Callable[[ShareRecords], Iterable[int]] | None = None


MEASURES = (
    Measure(
        *("rebalances", "rebalances", "rebalances", "group", "Number of rebalances."),
        of_consumers=lambda group: [len(group.figures.rebalance_durations_ms)],
    ),
    Measure(
        *("rebalance_duration_ms", "time of a rebalance", "ms", "rebalance", "Duration of a rebalance."),
        of_consumers=lambda group: group.figures.rebalance_durations_ms,
    ),
    Measure(
        *("unowned_ms", "without owner", "ms", "partition"),
        "Total time without an owner, from the start of the first consumer on.",
        of_consumers=lambda group: [partition.unowned_ms for partition in group.partitions],
        of_tasks=lambda tasks: [task.unprocessed_ms for task in tasks],
    ),
    Measure(
        *("most_unowned", "at once without owner", "partitions", "group"),
        "Largest number of partitions without an owner at the same time.",
        of_consumers=lambda group: [group.figures.most_unowned],
    ),
    Measure(
        *("furthest_behind_ms", "furthest behind", "ms", "partition"),
        "Largest age of the record at which a new owner began, records that are processed again included.",
        of_consumers=lambda group: [partition.furthest_behind_ms for partition in group.partitions],
    ),
    Measure(
        *("catch_up_ms", "caught up after", "ms", "loss of an owner"),
        "Time until the records that were written meanwhile had been processed.",
        of_consumers=lambda group: group.figures.catch_up_ms,
    ),
    Measure(
        *("moves", "moved", "times", "partition", "Number of times that the owner changed."),
        of_consumers=lambda group: [partition.moves for partition in group.partitions],
        of_tasks=lambda tasks: [task.moves for task in tasks],
    ),
    Measure(
        *("duplicate_ms", "processed again", "ms", "partition"),
        "Records that were processed again, as the total time in which they were written.",
        of_consumers=lambda group: [partition.duplicate_ms for partition in group.partitions],
    ),
    Measure(
        *("longest_duplicate_ms", "most processed again", "ms", "partition"),
        "The largest part of that which one change of owners caused.",
        of_consumers=lambda group: [partition.longest_duplicate_ms for partition in group.partitions],
    ),
    Measure(
        *("requests", "requests", "requests", "group", "Number of requests of its consumers."),
        of_consumers=lambda group: [group.requests],
    ),
    Measure(
        *(
            "group_records",
            "records",
            "records",
            "group",
            "Number of records about the group in the log, without offsets.",
        ),
        of_consumers=lambda group: [group.records],
    ),
    Measure(
        *("offsets_wait_ms", "waited for offsets", "ms", "assigned partition"),
        "Time until the consumer had the committed offset. "
        "OffsetFetch fails while a transaction with offsets of the partition is open.",
        of_consumers=lambda group: group.figures.offsets_waits_ms,
    ),
    Measure(
        *("transaction_open_ms", "transaction open", "ms", "transaction"),
        "Time from the begin until the group's coordinator had the marker.",
        of_consumers=lambda group: group.figures.transactions_open_ms,
    ),
    Measure(
        *("offsets_late_ms", "offsets visible late", "ms", "committed transaction"),
        "Time from the decision to commit until the group's coordinator had the marker, and consumers the offsets.",
        of_consumers=lambda group: group.figures.offsets_late_ms,
    ),
    Measure(
        *("done_ms", "done after", "ms", "record", "Time from the write of a record until a share group accepted it."),
        of_shares=lambda records: records.figures.done_ms,
    ),
    Measure(
        *("lock_wait_ms", "waited for a lock", "ms", "record of a dead worker"),
        "Time until another worker acquired the record.",
        of_shares=lambda records: records.figures.lock_waits_ms,
    ),
    Measure(
        *("redeliveries", "delivered again", "records", "share group"),
        "Number of records that were delivered more than once.",
        of_shares=lambda records: [records.figures.redeliveries],
    ),
    Measure(
        *("archived", "given up", "records", "share group"),
        "Number of records that were rejected, or reached the limit of deliveries.",
        of_shares=lambda records: [records.archived],
    ),
)
"""All measures, in the order of tables and pages."""

UNOWNED, DONE = (next(each for each in MEASURES if each.key == key) for key in ("unowned_ms", "done_ms"))
"""Measures by which variants are ranked: of consumers and applications, and of share groups."""


@frozen
class Scale:
    """Common unit of the values of a row."""

    name: str
    divisor: int

    def format(self, value: float) -> str:
        """Return a value without its unit, rounded; small values get more decimals."""
        scaled = value / self.divisor
        if self.divisor > 1 and scaled:
            return f"{scaled:,.{1 if abs(scaled) >= 1 else 2 if abs(scaled) >= 0.1 else 3}f}"
        return f"{scaled:,.0f}" if self.name == "ms" or float(scaled).is_integer() else f"{scaled:,.2f}"


def scale_of(measure: Measure, values: Iterable[float]) -> Scale:
    if measure.unit != "ms":
        return Scale(measure.unit, 1)
    largest = max((abs(value) for value in values), default=0)
    return next((scale for limit_ms, scale in _SCALES if largest < limit_ms), Scale("h", 3_600_000))


_SCALES = ((1_000, Scale("ms", 1)), (600_000, Scale("s", 1_000)), (36_000_000, Scale("min", 60_000)))
"""Units of durations, with the upper bounds of their use in milliseconds."""


@frozen
class Distribution:
    """Summary of many values."""

    count: int
    least: float
    mean: float
    most: float
    percentiles: dict[int, float]

    @classmethod
    def of(cls, values: Sequence[float]) -> Distribution:
        if not values:
            return cls(0, 0, 0, 0, dict.fromkeys(PERCENTILES, 0))
        ordered = sorted(values)
        percentiles = {p: ordered[max(0, ceil(len(ordered) * p / 100) - 1)] for p in PERCENTILES}
        return cls(len(ordered), ordered[0], sum(ordered) / len(ordered), ordered[-1], percentiles)

    def to_json(self) -> dict[str, float]:
        return {
            "count": self.count,
            "min": self.least,
            "mean": round(self.mean, 3),
            **{f"p{p}": value for p, value in self.percentiles.items()},
            "max": self.most,
        }


Bin = tuple[int, int, int]
"""First and last value of a bin, and the number of values in it."""


def histogram(values: Sequence[int], bin_count_max: int = 40, bounds: tuple[int, int] | None = None) -> list[Bin]:
    """Return at most ``bin_count_max`` bins of equal width between ``bounds``, by default the least
    and largest value.
    """
    if not values:
        return []
    least, most = bounds or (min(values), max(values))
    width = ceil((most - least + 1) / bin_count_max)
    counts = [0] * ceil((most - least + 1) / width)
    for value in values:
        counts[(value - least) // width] += 1
    return [(least + place * width, least + (place + 1) * width - 1, count) for place, count in enumerate(counts)]


def format_value(measure: Measure, value: float) -> str:
    if measure.unit == "ms":
        return format_duration(value) if value > -0.5 else f"-{format_duration(-value)}"  # no sign for a rounded 0
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


def format_range(measure: Measure, start: int, end: int) -> str:
    least, most = format_value(measure, start), format_value(measure, end)
    return least if least == most else f"{least} to {most}"
