"""Memory of Python workers with a log of one large group."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest
from pyspark.sql import SparkSession

import groupcoord.spark as pipeline
from tests.bench.spark_logs import HOT_WEIGHT, write_log
from tests.processes import descendants

GROUPS, FEW_RECORDS, MANY_RECORDS = 20, 300_000, 750_000
# the few fill a row group (262,144)
WORKER_BYTES_MAX, GROWTH_BYTES_MAX = 1_073_741_824, 67_108_864
SAMPLE_EVERY_S = 0.05


@contextmanager
def largest_worker() -> Iterator[Callable[[], int]]:
    """Sample this process's Python workers; yield a function that returns the largest resident set in bytes."""
    peaks_bytes = [0]
    done = Event()

    def watch() -> None:
        while not done.wait(SAMPLE_EVERY_S):
            peaks_bytes.append(max(map(worker_peak_bytes, descendants(os.getpid()))))

    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield lambda: max(peaks_bytes)
    finally:
        done.set()
        watcher.join()


def worker_peak_bytes(pid: int) -> int:
    """Return the peak resident set of a Python worker of Spark; 0 for any other process."""
    try:
        if b"pyspark.daemon" not in Path(f"/proc/{pid}/cmdline").read_bytes():
            return 0
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1_024 for line in status.splitlines() if line.startswith("VmHWM")), 0)


def verify_hot_log(spark: SparkSession, folder: Path, hot_records: int) -> int:
    """Verify a log with a group of ``hot_records`` records; return a worker's peak resident set in bytes."""
    write_log(folder, records=hot_records * (HOT_WEIGHT + GROUPS - 1) // HOT_WEIGHT, partitions=1, groups=GROUPS)
    with largest_worker() as peak_bytes:
        assert pipeline.verify(pipeline.read_log(spark, folder)).collect() == []
        return peak_bytes()


@pytest.mark.slow
def test_memory_does_not_grow_with_a_group(spark: SparkSession, tmp_path: Path) -> None:
    """Decoding, folding and loading more records of one group takes no more memory of a worker."""
    few = verify_hot_log(spark, tmp_path / "few", FEW_RECORDS)
    many = verify_hot_log(spark, tmp_path / "many", MANY_RECORDS)

    assert 0 < many < few + GROWTH_BYTES_MAX < WORKER_BYTES_MAX
