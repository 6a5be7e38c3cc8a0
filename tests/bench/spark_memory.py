"""How much memory the analysis takes of a log in which one group has nearly all records.

    python -m tests.bench.spark_memory [--records 5000000] [--master "local[2]"] [--json]

For each step: the largest resident set that a Python worker ever had, and the peak of the JVM's heap. A task has one
worker; in local mode its share of the JVM's memory comes on top.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

from pyspark.sql import SparkSession

from groupcoord.analysis.pipeline.batch import Pipeline
from groupcoord.spark.engine import SparkEngine
from groupcoord.spark.running import one_run

from .spark_decode import descendants
from .spark_logs import HOT_WEIGHT, write_log

GROUPS = 20
"""One hot group, and others beside it."""

SAMPLE_EVERY_S = 0.05
_MIB = 1_048_576


class Peak(NamedTuple):
    """The most memory that was taken so far.

    Attributes:
        step: what was done last.
        worker_bytes: resident, of the largest Python worker.
        heap_bytes: of the JVM, in use.
    """

    step: str
    worker_bytes: int
    heap_bytes: int


def write_hot_log(folder: Path, records: int) -> int:
    """Write a log of one partition with a group that has about so many records; return how many there are in all."""
    everybody = HOT_WEIGHT + GROUPS - 1
    return write_log(folder, records=records * everybody // HOT_WEIGHT, partitions=1, groups=GROUPS)


@contextmanager
def largest_worker() -> Iterator[Callable[[], int]]:
    """Watch the Python workers below this process; give what tells the largest resident set that one had, in bytes."""
    found = [0]
    done = Event()

    def watch() -> None:
        while not done.wait(SAMPLE_EVERY_S):
            found.extend(map(_peak_bytes, descendants(os.getpid())))
            found[:] = [max(found)]

    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield lambda: max(found)
    finally:
        done.set()
        watcher.join()


def _peak_bytes(process: int) -> int:
    """Return the most that a worker ever had in memory; 0 for other processes, and for those that have ended."""
    try:
        if b"pyspark.daemon" not in Path(f"/proc/{process}/cmdline").read_bytes():
            return 0
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1_024 for line in status.splitlines() if line.startswith("VmHWM")), 0)


def heap_peak_bytes(spark: SparkSession) -> int:
    """Return the most that the heap of the JVM held, garbage included."""
    assert spark._jvm is not None
    pools = spark._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    return sum(pool.getPeakUsage().getUsed() for pool in pools if str(pool.getType()) == "Heap memory")


def measure(spark: SparkSession, log: Path, out: Path, tell: Callable[[Peak], None]) -> None:
    """Analyze and verify a log, and tell the peaks after each step."""
    steps: list[str] = []
    with largest_worker() as worker_bytes:

        def begin(step: str) -> None:
            if steps:
                tell(Peak(steps[-1], worker_bytes(), heap_peak_bytes(spark)))
            steps.append(step)

        report = Pipeline(SparkEngine(spark), [log], out, verifies=True).run(begin)
        begin("the end")
    assert report.verification is not None
    assert report.verification.difference_count == 0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Memory that an analysis takes of a log with a hot group.")
    parser.add_argument("--records", type=int, default=5_000_000, help="of the hot group (default: 5 million)")
    parser.add_argument("--master", default="local[2]", help="where Spark runs (default: local[2])")
    parser.add_argument("--memory", default="2g", help="of the JVM's heap (default: 2g)")
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each step")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        write_hot_log(folder / "log", arguments.records)
        with one_run(arguments.master, arguments.memory, {}) as spark:
            measure(spark, folder / "log", folder / "out", _print_json if arguments.json else _print)


def _print(peak: Peak) -> None:
    print(
        f"{peak.step:28}{peak.worker_bytes // _MIB:6,} MiB of a worker{peak.heap_bytes // _MIB:7,} MiB of the heap",
        flush=True,
    )


def _print_json(peak: Peak) -> None:
    print(json.dumps(peak._asdict()), flush=True)


if __name__ == "__main__":
    main()
