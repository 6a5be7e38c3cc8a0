"""The measurements themselves work: large logs are valid, and every way of reading them gives a figure."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import groupcoord.spark as pipeline
from groupcoord.analysis.decode.chunks import RowSettings
from groupcoord.analysis.decode.files import cut, find_segments
from groupcoord.analysis.decode.tasks import rows_of_files

from ..bench import following
from ..bench.spark_decode import measure
from ..bench.spark_logs import write_log
from ..bench.spark_memory import largest_worker, write_hot_log

RECORDS = 20_000
HOT_RECORDS = 500_000
WORKER_BYTES_MAX = 1_073_741_824
GROWTH_BYTES_MAX = 67_108_864


@pytest.fixture(scope="module")
def large_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log that is not so large."""
    folder = tmp_path_factory.mktemp("large")
    assert RECORDS <= write_log(folder, records=RECORDS, partitions=2, groups=6) < RECORDS + 50
    return folder


def test_large_logs_are_valid(large_log: Path) -> None:
    """Every batch is sound, and there are commits, generations and both kinds of markers."""
    (files,) = find_segments([large_log])
    (ranges,) = cut(files.segments)
    batches = rows_of_files(files.file_system, ranges, RowSettings())
    rows = [row for batch in batches for row in batch.to_pylist()]
    kinds = Counter((row["kind"], row["record_type"], row["control_type"], row["problem"]) for row in rows)

    assert set(kinds) == {
        ("record", 1, None, None),
        ("record", 2, None, None),
        ("control", None, 0, None),
        ("control", None, 1, None),
        ("read", None, None, None),
    }
    assert kinds["record", 1, None, None] > 0.99 * RECORDS


@pytest.mark.ci
def test_following_keeps_up(tmp_path: Path) -> None:
    """All that the other process has written is read, at looks of 10 s on the CPU's clock."""
    found = following.measure(tmp_path, 1_000, 25.0, 20, 3)

    assert 25 < found["seconds"] < 60
    assert found["records"] >= 1_000 * 20
    # With each record of a group come its markers and accounts of what was read.
    assert found["rows"] >= found["first records"] + found["records"]


def test_logs_are_the_same_for_the_same_arguments(large_log: Path, tmp_path: Path) -> None:
    """The generator draws from its seed alone."""
    write_log(tmp_path, records=RECORDS, partitions=2, groups=6)

    assert [path.read_bytes() for path in sorted(tmp_path.glob("*/*.log"))] == [
        path.read_bytes() for path in sorted(large_log.glob("*/*.log"))
    ]


def test_every_way_of_reading_is_measured(spark: SparkSession, large_log: Path) -> None:
    """There is a figure for each, and the plain reader finds as many commits as ours."""
    found = measure(spark, large_log, RECORDS, 1)
    rows = spark.read.format("rows").load(str(large_log)).count()

    assert len(found) == 3
    # So short a run is lost in what Spark costs besides, which is taken off: the figure may even be negative.
    assert 0 not in found.values()
    assert rows == pipeline.read_log(spark, large_log).where("record_type = 1").count()


def worker_peak_bytes(spark: SparkSession, folder: Path, records: int) -> int:
    """Replay a log with a hot group, and return the largest resident set that a Python worker ever had."""
    write_hot_log(folder, records)
    with largest_worker() as peak_bytes:
        assert pipeline.verify(pipeline.read_log(spark, folder)).collect() == []
        return peak_bytes()


@pytest.mark.slow
def test_memory_does_not_grow_with_a_group(spark: SparkSession, tmp_path: Path) -> None:
    """Ten times the records of one group take no more memory of a worker, neither to decode nor to fold nor to load."""
    few = worker_peak_bytes(spark, tmp_path / "few", HOT_RECORDS // 10)
    many = worker_peak_bytes(spark, tmp_path / "many", HOT_RECORDS)

    assert 0 < few <= many < few + GROWTH_BYTES_MAX < WORKER_BYTES_MAX
