"""Engine of the pipeline in this process, without Spark: what ``analyze --engine local`` runs.

Log partitions are folded one after the other; memory holds their groups.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack

import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

from groupcoord.analysis.decode.commits import WRITTEN_COMMITS
from groupcoord.analysis.decode.parquet import TableFile
from groupcoord.analysis.decode.results import ResultDirectory
from groupcoord.analysis.decode.schema import KIND_CONTROL, KIND_RECORD
from groupcoord.analysis.decode.tasks import RecordTask
from groupcoord.analysis.fold.commits import CommitFacts, CommitFold
from groupcoord.analysis.fold.histories import feed_history
from groupcoord.analysis.fold.history import KINDS, LogHistory
from groupcoord.analysis.fold.load import partition_load
from groupcoord.analysis.fold.records import Decoded, LogPartition, corrupt, decode_records, read_back
from groupcoord.analysis.fold.replay import REPLAYED, replay_batches
from groupcoord.analysis.fold.replayed import Replayed
from groupcoord.analysis.fold.transactions import commits
from groupcoord.analysis.pipeline.batch import Moment
from groupcoord.analysis.pipeline.tables import Known, topics_of, write_groups, write_lag
from groupcoord.analysis.report.writer import ANOMALIES, LAG
from groupcoord.analysis.rules.differences import Told, differences, group_answers, offset_answers, unknown_groups
from groupcoord.analysis.rules.ends import behind_ends
from groupcoord.analysis.rules.groups import Row
from groupcoord.analysis.tables import TABLES_OF_KINDS, TableFiles

_FOLDED = (
    *("kind", "record_type", "problem", "log_offset", "log_timestamp_ms", "group_id", "key", "value", "tombstone"),
    *("partition_leader_epoch", "is_transactional", *WRITTEN_COMMITS.names),
)
_REPLAYED = ("group_id", "record_type", "problem", *REPLAYED)


@frozen
class _FoldedPartition:
    """The groups of a log partition.

    Attributes:
        partition: the log partition.
        known: what is known of its groups.
        told: what tables say of groups, if they are to be verified.
    """

    partition: LogPartition
    known: Known
    told: Told


@frozen
class LocalFolded:
    """The groups of all log partitions."""

    partitions: Sequence[_FoldedPartition]

    @property
    def known(self) -> list[Known]:
        return [one.known for one in self.partitions]

    def topics(self) -> list[str]:
        return topics_of(self.known)


class LocalEngine:
    """Does the work of a :class:`groupcoord.analysis.pipeline.batch.Pipeline` in this process.

    Attributes:
        tasks: see :class:`groupcoord.analysis.pipeline.batch.Engine`.
    """

    tasks = (0, 0)

    def open(self, out: str | os.PathLike[str]) -> ResultDirectory:
        self._results = ResultDirectory(out)
        return self._results

    def close(self) -> None: ...

    def _note(self, done: int, total: int) -> None:
        self.tasks = (done, total)

    def decode(self, tasks: Sequence[RecordTask], files: TableFiles) -> Decoded:
        decoded = decode_records(tasks, self._results, self._note)
        self.tasks = (0, 0)
        files.counts["records"] = decoded.written.records
        files.write("read_counts", decoded.accounts.load.read_counts())
        files.write("corrupt", corrupt(decoded.accounts.ranges()))
        files.write_rows("partition_load", partition_load(decoded.accounts.load.keys()))
        return decoded

    # ------------------------------------------------------------ folding

    def fold(self, decoded: Decoded, files: TableFiles, *, verifies: bool) -> LocalFolded:
        found, transactional = [], 0
        with files.growing([*TABLES_OF_KINDS.values(), "current_offsets"]) as add:
            for number, partition in enumerate(decoded.partitions):
                self._note(number, len(decoded.partitions))
                facts, history, count = self._fold_partition(decoded, partition, files)
                transactional += count
                rows = _rows_by_kind(history)
                for kind, name in TABLES_OF_KINDS.items():
                    add(name, rows[kind])
                known = Known.of(facts, rows)
                add("current_offsets", known.current.to_pylist())
                found.append(_FoldedPartition(partition, known, group_answers(rows) if verifies else {}))
        files.counts["commits"] = decoded.written.commits + transactional
        if not files.counts["commits"]:
            with files.commits_file(None):
                pass  # a table without rows is one, too
        self.tasks = (0, 0)
        return LocalFolded(found)

    def _fold_partition(
        self, decoded: Decoded, partition: LogPartition, files: TableFiles
    ) -> tuple[CommitFacts, LogHistory, int]:
        """Fold a log partition; return how many commits of transactions were written, too."""
        fold, history, markers = CommitFold(), LogHistory(partition.number), partition.markers()
        for span in decoded.spans(partition):
            history.add_span(*span)
        table: TableFile | None = None
        with ExitStack() as stack:
            for rows in read_back(self._results, partition, _columns(_FOLDED), [KIND_RECORD]):
                feed_history(history, _understood(rows))
                found = commits(rows, markers)
                fold.add(found)
                made = found.filter(pc.is_valid(found["transaction"])).select(WRITTEN_COMMITS.names)
                if made.num_rows:
                    table = table or stack.enter_context(files.commits_file(partition.number))
                    for batch in made.to_batches():
                        table.write(batch)
        return fold.facts(), history, 0 if table is None else table.rows

    # ------------------------------------------------------------ judging

    def judge(self, step: str, folded: LocalFolded, moment: Moment, files: TableFiles) -> None:
        known, ends = folded.known, moment.ends
        if step == ANOMALIES:
            write_groups(known, ends, files, moment.now_ms, moment.retention_minutes)
        elif step == LAG:
            assert ends is not None
            times = moment.source.read_times(behind_ends([one.current for one in known], ends))
            write_lag(known, ends, times, files, moment.now_ms, moment.read_ms)
        else:
            with files.growing(["differences"]) as add:
                for one in folded.partitions:
                    add("differences", self._differences(one))

    def _differences(self, one: _FoldedPartition) -> list[Row]:
        """Load the records of a log partition into coordinators, and return where its tables differ."""
        replayed = Replayed()
        for rows in read_back(self._results, one.partition, _REPLAYED, [KIND_RECORD, KIND_CONTROL]):
            replayed.add(rows)
        answers = (row for batch in replay_batches(replayed.batches()) for row in batch.to_pylist())
        tables = one.told | offset_answers(one.known.current)
        return list(differences(answers, tables, unknown_groups(one.known.histories)))


def _columns(names: Iterable[str]) -> list[str]:
    """Return those that the table of records has, each once."""
    return [name for name in dict.fromkeys(names) if name != "transaction"]


def _understood(records: pa.Table) -> pa.Table:
    return records.filter(pc.and_(pc.is_null(records["problem"]), pc.is_valid(records["group_id"])))


def _rows_by_kind(history: LogHistory) -> dict[str, list[Row]]:
    """Return the rows of a history by kind, each with its group and log partition."""
    found: dict[str, list[Row]] = {kind: [] for kind in KINDS}
    for row in history.rows():
        found[row.kind].append({"group_id": row.group_id, "log_partition": row.log_partition} | row.values)
    return found
