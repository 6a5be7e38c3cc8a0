"""Lag table from all of its sources."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import DataFrame, SparkSession

import groupcoord.spark as pipeline
from groupcoord.analysis.report.data.model import LagRow
from groupcoord.analysis.report.data.rows import lag_rows, status_counts
from groupcoord.spark.schemas import COMMITS, LIVE_END_OFFSETS, RECORD_TIMES

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


def samples(spark: SparkSession, *rows: tuple[int, int, int]) -> DataFrame:
    """Return samples of ends: partition, time and end."""
    made = [(TOPIC, partition, at_ms, 5, end, end, 0, 0) for partition, at_ms, end in rows]
    return spark.createDataFrame(made, LIVE_END_OFFSETS)


def test_statuses_come_of_commits_and_looks(spark: SparkSession) -> None:
    """Of commits, of looks at several times, and of the times of records."""
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
    seen = samples(
        spark,
        *[(0, 78_500 + 1_000 * second, 30 + 12 * second) for second in range(12)],
        *[(partition, 85_000, 60) for partition in (1, 2, 5)],
        *[(3, 61_000, 50), (4, 85_000, 30)],
        *[(partition, NOW_MS, 200) for partition in range(6)],
    )
    now = seen.where(f"at_ms = {NOW_MS}")
    times = spark.createDataFrame([(TOPIC, 2, 30, 80_000), (TOPIC, 3, 30, 99_000), (TOPIC, 4, 10, 0)], RECORD_TIMES)
    current = pipeline.current_offsets(committed)
    table = pipeline.lag(current, now, end_offset_samples=seen, commits=committed, record_times=times).cache()
    found = {row.topic_partition: row for row in table.collect()}

    assert {partition: (row.lag, row.status, row.lag_ms_method) for partition, row in found.items()} == {
        0: (80, "WARN", "interpolated"),
        1: (160, "STALL", "extrapolated"),
        2: (170, "REWIND", "record"),
        3: (170, "STOP", "record"),
        4: (170, "OK", "interpolated"),
        5: (150, "BEHIND", "extrapolated"),
        6: (None, "UNKNOWN", None),
    }
    rows = [row.asDict() for row in table.collect()]
    assert lag_rows(rows) == (LagRow("g", TOPIC, 6, 900, 170, 11_000, "REWIND", "bad"),)
    assert [(one.status, one.partitions, one.groups) for one in status_counts(rows)] == [
        *(
            ("REWIND", 1, 1),
            ("STALL", 1, 1),
            ("STOP", 1, 1),
            ("WARN", 1, 1),
            ("BEHIND", 1, 1),
            ("UNKNOWN", 1, 1),
            ("OK", 1, 1),
        ),
    ]
