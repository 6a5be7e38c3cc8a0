"""From a log to tables on disk, one page and its figures, without Spark: what ``analyze --engine local`` runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack

import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

from groupcoord.analysis.columns.commits import WRITTEN_COMMITS
from groupcoord.analysis.columns.errors import RunFailedError, first_line
from groupcoord.analysis.columns.parquet import TableFile
from groupcoord.analysis.columns.schema import KIND_CONTROL, KIND_RECORD
from groupcoord.analysis.figures.finished import FinishedTables
from groupcoord.analysis.figures.page import ANOMALIES, COUNT, HISTORY, LAG, READ, REPORT, VERIFY
from groupcoord.analysis.folding.commits import CommitFacts, CommitFold
from groupcoord.analysis.folding.histories import feed_history
from groupcoord.analysis.folding.load import partition_load
from groupcoord.analysis.folding.records import Decoded, LogPartition, corrupt, decode_records, read_back
from groupcoord.analysis.folding.replay import REPLAYED, replay_batches
from groupcoord.analysis.folding.replayed import Replayed
from groupcoord.analysis.folding.transactions import commits
from groupcoord.analysis.history import KINDS, LogHistory
from groupcoord.analysis.judging.differences import Told, differences, group_answers, offset_answers, unknown_groups
from groupcoord.analysis.judging.ends import Ends, behind_ends
from groupcoord.analysis.judging.groups import Row
from groupcoord.analysis.report.model import Report
from groupcoord.analysis.running.judged import Known, topics_of, write_groups, write_lag
from groupcoord.analysis.running.runs import AnalysisRun
from groupcoord.analysis.tables import END_OFFSETS_TABLE, TABLES_OF_KINDS, TableFiles

_FOLDED = (
    *("kind", "record_type", "problem", "log_offset", "log_timestamp_ms", "group_id", "key", "value", "tombstone"),
    *("partition_leader_epoch", "is_transactional", *WRITTEN_COMMITS.names),
)
_REPLAYED = ("group_id", "record_type", "problem", *REPLAYED)


@frozen
class _Folded:
    """What is known of the groups of a log partition.

    Attributes:
        partition: which.
        known: what is known of its groups.
        told: what tables say of groups, if they are to be verified.
    """

    partition: LogPartition
    known: Known
    told: Told


class LocalAnalysis(AnalysisRun):
    """One run over some logs into one directory, in this process.

    Log partitions are folded one after the other, and memory is that of their groups. The arguments are those of
    :class:`groupcoord.analysis.running.runs.AnalysisRun`.

    Attributes:
        tasks: how many pieces of the logs are read, and how many there are; (0, 0) before and behind that.
    """

    tasks = (0, 0)

    def run(self, begin: Callable[[str], None] = lambda step: None) -> Report:
        """Write the tables, the page and its figures.

        Args:
            begin: is called with the name of each step when it begins.

        Raises:
            RunFailedError: a file can't be read or written on the way.
        """
        try:
            return self._run(begin)
        except OSError as error:
            raise RunFailedError(f"the analysis failed: {first_line(error)}") from error

    def _run(self, begin: Callable[[str], None]) -> Report:
        begin(READ)
        read_ms = self._clock.now_ms()
        decoded = decode_records(self._source.tasks(), self._results, self._note)
        self.tasks = (0, 0)
        files = TableFiles(self._results)
        files.counts["records"] = decoded.written.records
        begin(COUNT)
        files.write("read_counts", decoded.accounts.load.read_counts())
        files.write("corrupt", corrupt(decoded.accounts.ranges()))
        files.write_rows("partition_load", partition_load(decoded.accounts.load.keys()))
        begin(HISTORY)
        folded = self._fold(decoded, files)
        self.tasks = (0, 0)
        self._judge(folded, files, decoded.written.last_timestamp_ms, read_ms, begin)
        if self._verifies:
            begin(VERIFY)
            with files.growing(["differences"]) as add:
                for one in folded:
                    add("differences", self._differences(one))
        begin(REPORT)
        return self._write_page(FinishedTables(self._results, files.counts))

    def _note(self, done: int, total: int) -> None:
        self.tasks = (done, total)

    # ------------------------------------------------------------ folding

    def _fold(self, decoded: Decoded, files: TableFiles) -> list[_Folded]:
        """Fold one log partition after the other, and write the tables that are a history's rows."""
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
                found.append(_Folded(partition, known, group_answers(rows) if self._verifies else {}))
        files.counts["commits"] = decoded.written.commits + transactional
        if not files.counts["commits"]:
            with files.commits_file(None):
                pass  # a table without rows is one, too
        return found

    def _fold_partition(
        self, decoded: Decoded, partition: LogPartition, files: TableFiles
    ) -> tuple[CommitFacts, LogHistory, int]:
        """Fold a log partition; return how many commits were written that transactions made, too."""
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

    def _judge(
        self,
        folded: Sequence[_Folded],
        files: TableFiles,
        now_ms: int | None,
        read_ms: int,
        begin: Callable[[str], None],
    ) -> None:
        """Write the tables about groups."""
        known = [one.known for one in folded]
        told = self._source.read_ends(topics_of(known))
        if told is not None and "at_ms" in told.column_names:
            files.write(END_OFFSETS_TABLE, told)  # what the lag is told from
        ends = None if told is None else Ends(told)
        begin(ANOMALIES)
        write_groups(known, ends, files, now_ms, self._retention_minutes)
        if ends is not None:
            begin(LAG)
            times = self._source.read_times(behind_ends([one.current for one in known], ends))
            write_lag(known, ends, times, files, now_ms, read_ms)

    def _differences(self, one: _Folded) -> list[Row]:
        """Let coordinators load the records of a log partition, and return where its tables differ."""
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
