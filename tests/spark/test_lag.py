"""The table of lag: looks at ends, windows of commits, and who has the partitions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession

import groupcoord.spark as pipeline
from groupcoord.analysis.figures.findings import lag_rows, status_counts
from groupcoord.analysis.report.model import LagRow
from groupcoord.spark.schemas import COMMITS, END_OFFSETS, LIVE_END_OFFSETS, RECORD_TIMES, RECORDS

NOW_MS = 91_000
TOPIC = "t"


def commits(spark: SparkSession, *partitions: tuple[int, list[int | None]]) -> DataFrame:
    """Return commits a second apart, of each partition when the last one is and the offsets; None is a tombstone."""
    return spark.createDataFrame(list(_commits(partitions)), COMMITS)


def _commits(partitions: tuple[tuple[int, list[int | None]], ...]) -> Iterator[tuple[object, ...]]:
    for partition, (last_ms, offsets) in enumerate(partitions):
        for number, offset in enumerate(offsets):
            at_ms = last_ms - 1_000 * (len(offsets) - 1 - number)
            place = (0, 100 * partition + number, at_ms, "g", TOPIC, partition)
            yield (*place, offset, -1, "", at_ms, -1, None, -1, None, offset is None, 10)


def looks(spark: SparkSession, *rows: tuple[int, int, int]) -> DataFrame:
    """Return looks at ends: partition, time and end."""
    made = [(TOPIC, partition, at_ms, 5, end, end, 0, 0) for partition, at_ms, end in rows]
    return spark.createDataFrame(made, LIVE_END_OFFSETS)


def test_statuses_come_of_commits_and_looks(spark: SparkSession) -> None:
    """The last ten commits since the last tombstone, each with the lag of the look before it, and the lag of now.

    Who had not stopped when the log was read has not because ends were asked for later.
    """
    committed = commits(
        spark,
        (90_000, [10 * number for number in range(1, 13)]),  # 10 records a second, of 12 that come
        (90_000, [50, None, 40, 40, 40]),
        (90_000, [20, 50, 30]),
        (60_000, [10, 20, 30]),
        (60_000, [10, 20, 30]),  # and was at the end of late
        (90_000, [50]),
        (90_000, [10, 20]),  # of which no end is known
    )
    seen = looks(
        spark,
        *[(0, 78_500 + 1_000 * second, 30 + 12 * second) for second in range(12)],
        *[(partition, 85_000, 60) for partition in (1, 2, 5)],
        *[(3, 61_000, 50), (4, 85_000, 30)],
        *[(partition, NOW_MS, 200) for partition in range(6)],
    )
    now = seen.where(f"at_ms = {NOW_MS}")
    times = spark.createDataFrame([(TOPIC, 2, 30, 80_000), (TOPIC, 3, 30, 99_000), (TOPIC, 4, 10, 0)], RECORD_TIMES)
    current = pipeline.current_offsets(committed)
    table = pipeline.lag(current, now, looks=seen, commits=committed, record_times=times).cache()
    found = {row.topic_partition: row for row in table.collect()}

    assert {partition: (row.lag, row.status, row.complete) for partition, row in found.items()} == {
        0: (80, "WARN", 1.0),
        1: (160, "STALL", 0.3),
        2: (170, "REWIND", 0.3),
        3: (170, "STOP", 0.3),
        4: (170, "OK", 0.3),
        5: (150, "OK", 0.1),
        6: (None, None, None),
    }
    assert {partition: (row.lag_ms, row.lag_ms_method) for partition, row in found.items() if partition > 1} == {
        2: (11_000, "record"),
        3: (0, "record"),  # by a clock that is ahead
        4: (6_000, "interpolated"),  # the record is one of another offset
        5: (6_429, "extrapolated"),
        6: (None, None),
    }
    by_then = pipeline.lag(current, now, looks=seen, commits=committed, record_times=times, read_ms=61_500).collect()
    assert {row.topic_partition: row.status for row in by_then}[3] == "OK"
    assert {row.lag_ms for row in by_then} == {row.lag_ms for row in found.values()}
    rows = [row.asDict() for row in table.collect()]
    assert lag_rows(rows) == (LagRow("g", TOPIC, 6, 900, 170, 11_000, "REWIND"),)
    assert [(one.status, one.partitions, one.groups) for one in status_counts(rows)] == [
        *(("REWIND", 1, 1), ("STALL", 1, 1), ("STOP", 1, 1), ("WARN", 1, 1), ("OK", 2, 1)),
    ]


def test_ends_without_times_tell_statuses(spark: SparkSession) -> None:
    """Of a file of ends: judged from the last commit or the moment given; without commits nothing is said."""
    committed = commits(spark, (80_000, [10, 20, 30]), (90_000, [40, 40]))
    offsets = pipeline.current_offsets(committed)
    ends = spark.createDataFrame([(TOPIC, 0, 50), (TOPIC, 1, 50)], END_OFFSETS)
    judged = [
        {row.topic_partition: (row.status, row.lag, row.lag_ms) for row in table.collect()}
        for table in (
            pipeline.lag(offsets, ends, commits=committed),
            pipeline.lag(offsets, ends, commits=committed, now_ms=80_000),
            pipeline.lag(offsets, ends),
        )
    ]

    assert judged == [
        {0: ("STOP", 20, None), 1: ("STALL", 10, None)},
        {0: ("OK", 20, None), 1: ("STALL", 10, None)},
        {0: (None, 20, None), 1: (None, 10, None)},
    ]


@pytest.mark.slow
def test_a_group_that_was_at_the_end_of_late_has_not_stopped(spark: SparkSession) -> None:
    """What has just come to an idle topic makes no anomaly of its consumers."""
    committed = commits(spark, (90_000, [30, 30, 30]), (90_000, [30, 30, 30]))
    seen = looks(spark, (0, 700_000, 30), (0, 710_000, 31), (1, 710_000, 31))
    records = spark.createDataFrame([], RECORDS)
    now = seen.where("at_ms = 710000")
    found = pipeline.anomalies(records, commits=committed, end_offsets=now, looks=seen, now_ms=710_000)

    assert [(row.topic_partition, row.status) for row in found.collect()] == [(1, "STOP")]
