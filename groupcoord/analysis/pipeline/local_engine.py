"""Engine of the pipeline in this process, for ``analyze --engine local``. Memory holds the groups of all log
partitions.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pyarrow.compute as pc

from groupcoord.analysis.decode.files import RecordTask
from groupcoord.analysis.decode.parquet import WRITTEN_COMMITS, ResultDirectory, TableFile, Written
from groupcoord.analysis.decode.schema import KIND_CONTROL, KIND_RECORD
from groupcoord.analysis.fold.history.rows import Row
from groupcoord.analysis.fold.records import (
    FOLDED_COLUMNS,
    LogPartition,
    PartitionFold,
    corrupt,
    decode_records,
    partition_load,
    read_back,
)
from groupcoord.analysis.fold.replay import REPLAYED, Replayed, replay_batches
from groupcoord.analysis.pipeline.batch import ANOMALIES, LAG, Moment
from groupcoord.analysis.pipeline.tables import Known, topics_of, write_groups, write_lag
from groupcoord.analysis.rules.groups import (
    Histories,
    differences,
    group_answers,
    offset_answers,
    unknown_groups,
)
from groupcoord.analysis.rules.lag import behind_ends
from groupcoord.analysis.tables import TABLES_OF_KINDS, TableFiles

_REPLAYED = ("group_id", "record_type", "problem", *REPLAYED)


class LocalEngine:
    """Does the work of a :class:`groupcoord.analysis.pipeline.batch.Pipeline` in this process."""

    tasks = (0, 0)

    def open(self, out: str | os.PathLike[str]) -> ResultDirectory:
        self._results = ResultDirectory(out)
        return self._results

    def close(self) -> None: ...

    def _note(self, done: int, total: int) -> None:
        self.tasks = (done, total)

    def decode(self, tasks: Sequence[RecordTask], files: TableFiles) -> Written:
        self._decoded = decoded = decode_records(tasks, self._results, self._note)
        self.tasks = (0, 0)
        files.counts["records"] = decoded.written.records
        files.write("read_counts", decoded.accounts.load.read_counts())
        files.write("corrupt", corrupt(decoded.accounts.ranges()))
        files.write_rows("partition_load", partition_load(decoded.accounts.load.keys()))
        return decoded.written

    # ------------------------------------------------------------ folding

    def fold(self, files: TableFiles, *, verifies: bool) -> None:
        transactional, partitions = 0, self._decoded.partitions
        self._known: list[Known] = []
        self._differences: list[Row] = []
        with files.growing([*TABLES_OF_KINDS.values(), "current_offsets"]) as add:
            for number, partition in enumerate(partitions):
                self._note(number, len(partitions))
                fold, count = self._fold_partition(partition, files)
                transactional += count
                rows = fold.rows_by_kind()
                for kind, name in TABLES_OF_KINDS.items():
                    add(name, rows[kind])
                known = Known.of(fold.facts(), rows)
                add("current_offsets", known.current.to_pylist())
                self._known.append(known)
                if verifies:
                    self._differences += self._differences_of(partition, known, rows)
        files.counts["commits"] = self._decoded.written.commits + transactional
        if not files.counts["commits"]:
            with files.commits_file(None):
                pass  # a table without rows is one, too
        self.tasks = (0, 0)

    def _fold_partition(self, partition: LogPartition, files: TableFiles) -> tuple[PartitionFold, int]:
        """Fold a log partition and write its transactional commits; return also their number."""
        fold = PartitionFold(partition.number, partition.markers(), self._decoded.spans(partition))
        table: TableFile | None = None
        with ExitStack() as stack:
            for rows in read_back(self._results, partition, FOLDED_COLUMNS, [KIND_RECORD]):
                found = fold.add(rows)
                made = found.filter(pc.is_valid(found["transaction"])).select(WRITTEN_COMMITS.names)
                if made.num_rows:
                    table = table or stack.enter_context(files.commits_file(partition.number))
                    for batch in made.to_batches():
                        table.write(batch)
        return fold, 0 if table is None else table.rows

    # ------------------------------------------------------------ judging

    def topics(self) -> list[str]:
        return topics_of(self._known)

    def judge(self, step: str, moment: Moment, files: TableFiles) -> None:
        known, ends = self._known, moment.ends
        if step == ANOMALIES:
            write_groups(known, ends, files, moment.now_ms, moment.retention_minutes)
        elif step == LAG:
            assert ends is not None
            times = moment.source.read_times(behind_ends([one.current for one in known], ends))
            write_lag(known, ends, times, files, moment.now_ms, moment.read_ms)
        else:
            files.write_rows("differences", self._differences)

    def _differences_of(self, partition: LogPartition, known: Known, rows: Histories) -> Iterator[Row]:
        replayed = Replayed()
        for records in read_back(self._results, partition, _REPLAYED, [KIND_RECORD, KIND_CONTROL]):
            replayed.add(records)
        answers = (row for batch in replay_batches(replayed.batches()) for row in batch.to_pylist())
        return differences(answers, group_answers(rows) | offset_answers(known.current), unknown_groups(rows))
