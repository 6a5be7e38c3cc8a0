"""How fast Spark decodes logs: our data source beside one that reads a record at a time, in the same run.

    python -m tests.bench.spark_decode [--records 2000000] [--rounds 3] [--json]

What counts is the CPU time of the whole tree of processes (this one, the JVM, Python workers), on a session with one
core, CRC checks included; nothing is done with the rows. Each figure is the best of the rounds, after a run that warms
the JVM up. The two ways are compared where they make the same columns.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

import groupcoord.spark
from groupcoord.core.log.records import OffsetCommitRecord, OffsetTombstone
from groupcoord.records.batches import iter_batches
from groupcoord.records.codec import decode_record
from groupcoord.spark.schemas import COMMITS

from .spark_logs import write_log

WARM_UP_RECORDS = 200_000
ALL_COLUMNS, SAME_COLUMNS = "data source, all columns", "data source, columns of commits"
A_RECORD_AT_A_TIME = "a record at a time"
_TICKS = os.sysconf("SC_CLK_TCK")


class RowSource(DataSource):
    """The plain way: committed offsets as tuples, a file a task."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "rows"

    def schema(self) -> StructType:
        """Return the columns of committed offsets that need no second look."""
        names = [field.name for field in COMMITS if field.name not in ("transaction", "size_bytes")]
        return StructType([COMMITS[name] for name in names])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads."""
        return RowReader(Path(self.options["path"]))


class RowReader(DataSourceReader):
    """Yields a tuple for each committed offset and each tombstone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def partitions(self) -> Sequence[InputPartition]:
        """Return one task for each file."""
        return [InputPartition(str(path)) for path in sorted(self._folder.glob("*/*.log"))]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of one file."""
        path = Path(partition.value)
        log_partition = int(path.parent.name.rpartition("-")[2])
        for batch in iter_batches(path.read_bytes()):
            if batch.is_control:
                continue
            producer_id = batch.producer_id
            for offset, timestamp_ms, key, value in batch.records():
                found = decode_record(key or b"", value)
                if isinstance(found, OffsetCommitRecord):
                    yield (
                        log_partition, offset, timestamp_ms, found.group_id, found.topic, found.partition,
                        found.offset, found.leader_epoch, found.metadata, found.commit_timestamp_ms,
                        found.expire_timestamp_ms, found.topic_id.bytes, producer_id, False,
                    )  # fmt: skip
                elif isinstance(found, OffsetTombstone):
                    names = (found.group_id, found.topic, found.partition)
                    yield (log_partition, offset, timestamp_ms, *names, *[None] * 6, producer_id, True)


def descendants(root: int) -> dict[int, int]:
    """Return a process and its descendants with the ticks of CPU that they and their finished children have used."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended meanwhile
            parents[int(name)] = int(fields[1])
            ticks[int(name)] = sum(map(int, fields[11:15]))
    found: dict[int, int] = {}
    waiting = [root]
    while waiting:
        process = waiting.pop()
        found[process] = ticks.get(process, 0)
        waiting += [child for child, parent in parents.items() if parent == process]
    return found


def tree_cpu_s(root: int) -> float:
    """Return the CPU seconds that a process, its descendants and their finished children have used."""
    return sum(descendants(root).values()) / _TICKS


def best_cpu_s(run: Callable[[], None], rounds: int) -> float:
    """Return the CPU seconds of the best of several runs."""
    best = float("inf")
    for _ in range(rounds):
        before = tree_cpu_s(os.getpid())
        run()
        best = min(best, tree_cpu_s(os.getpid()) - before)
    return best


def consume(table: DataFrame) -> None:
    """Make every row and do nothing with it."""
    table.write.format("noop").mode("overwrite").save()


def measure(spark: SparkSession, folder: Path, records: int, rounds: int) -> dict[str, float]:
    """Return records per CPU second, by way of reading."""
    cloudpickle.register_pickle_by_value(sys.modules[RowSource.__module__])
    spark.dataSource.register(RowSource)
    ways = {
        ALL_COLUMNS: lambda: consume(groupcoord.spark.read_log(spark, folder)),
        SAME_COLUMNS: lambda: consume(
            groupcoord.spark.read_log(spark, folder, columns=RowSource({}).schema().fieldNames())
        ),
        A_RECORD_AT_A_TIME: lambda: consume(spark.read.format("rows").load(str(folder))),
    }
    return {name: records / best_cpu_s(run, rounds) for name, run in ways.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Records per CPU second that Spark decodes.")
    parser.add_argument("--records", type=int, default=2_000_000, help="how many (default: 2 million)")
    parser.add_argument("--rounds", type=int, default=3, help="how often to measure (default: 3)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        written = write_log(folder / "log", records=arguments.records, partitions=8)
        warm_up = write_log(folder / "warm-up", records=WARM_UP_RECORDS, partitions=8)
        spark = groupcoord.spark.session("local[1]", shuffle_partitions=1)
        measure(spark, folder / "warm-up", warm_up, 1)
        found = measure(spark, folder / "log", written, arguments.rounds)
        spark.stop()
    if arguments.json:
        print(json.dumps({name: round(per_s) for name, per_s in found.items()}))
        return
    for name, per_s in found.items():
        print(f"{name:34}{per_s / 1_000:8,.0f} k records per CPU second")
    print(f"{'times as fast':34}{found[SAME_COLUMNS] / found[A_RECORD_AT_A_TIME]:8.1f}")


if __name__ == "__main__":
    main()
