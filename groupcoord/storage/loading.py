"""Records for a load of a log partition, without those that the next records replace.

A log before compaction repeats a few keys, and a compacted one consists mostly of adjacent commits; decoding them would
take most of the time. So commits stay columns, and in a run of batches with nothing but commits only the last commit of
the same partitions is decoded. The same holds for runs of records of consumer groups (KIP-848), since each heartbeat
that changes a group writes some. The loaded state is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from groupcoord.core.log.records import CommitRecords
from groupcoord.log_store import LoadedCommits, LogRecord
from groupcoord.records.batches import MAGIC_V2, Batch
from groupcoord.records.codec import KEY_STARTS, decode_record
from groupcoord.records.commit_batch import FoundCommit, read_commits
from groupcoord.storage.segments import EncodedRecord, all_records, records_of

RUN_KEYS_MAX = 50_000
"""Largest number of keys in a run. A run ends soon after, before it has twice as many."""

_Run = dict[tuple[tuple[str, str], tuple[int, ...]], FoundCommit]
"""Commits by group and topic and by partitions, in the order of the log."""


def last_records(batches: Iterable[Batch]) -> Iterator[LogRecord | LoadedCommits]:
    """Yield the records of ``batches`` in order, without those that a later record of the same run replaces.

    A run consists of commits or of records of consumer groups. Any other batch ends it: the other kind of run, a
    tombstone of an offset, a classic group, a part of a transaction.

    Raises:
        CorruptBatchError: the records of a batch are malformed.
    """
    commits, group_records = _CommitRun(), _GroupRun()
    for batch in batches:
        if commits.take(batch):
            if group_records.last:
                yield from group_records.end()
            if commits.is_long:
                yield from commits.end()
        elif group_records.take(batch):
            if commits.last:
                yield from commits.end()
            if group_records.is_long:
                yield from group_records.end()
        else:
            yield from commits.end()
            yield from group_records.end()
            yield from all_records([batch])
    yield from commits.end()
    yield from group_records.end()


class _CommitRun:
    """Consecutive commits, of which the last one for the same partitions counts."""

    def __init__(self) -> None:
        self.last: _Run = {}
        self._uncounted = 0

    def take(self, batch: Batch) -> bool:
        """Add the commits of a batch if it holds nothing else."""
        found = read_commits(batch)
        if found is None:
            return False
        for commit in found:
            key = commit[1:3]
            self.last.pop(key, None)
            self.last[key] = commit
        self._uncounted += batch.record_count
        return True

    @property
    def is_long(self) -> bool:
        """Return whether the run has too many keys, which is checked from time to time."""
        if self._uncounted <= RUN_KEYS_MAX:
            return False
        self._uncounted = 0
        return sum(len(indexes) for _, indexes in self.last) > RUN_KEYS_MAX

    def end(self) -> Iterator[LoadedCommits]:
        """Decode the remaining commits and begin another run."""
        last, self.last = self.last, {}
        self._uncounted = 0
        for commit in last.values():
            yield LoadedCommits(commit.log_offset, CommitRecords((commit.to_topic(),)))


class _GroupRun:
    """Consecutive records of groups, of which the last one for each key counts."""

    def __init__(self) -> None:
        self.last: dict[bytes, EncodedRecord] = {}

    def take(self, batch: Batch) -> bool:
        """Add the records of a batch if it holds nothing else."""
        if batch.magic != MAGIC_V2 or batch.is_control or batch.producer_id >= 0:
            return False
        records = records_of(batch)
        if not all(key is not None and key[:2] in KEY_STARTS for _, _, key, _ in records):
            return False
        for record in records:
            key = record[2] or b""
            self.last.pop(key, None)
            self.last[key] = record
        return True

    @property
    def is_long(self) -> bool:
        """Return whether the run has too many keys."""
        return len(self.last) > RUN_KEYS_MAX

    def end(self) -> Iterator[LogRecord]:
        """Decode the remaining records and begin another run."""
        last, self.last = self.last, {}
        for key, (offset, timestamp_ms, _, value) in last.items():
            yield LogRecord(decode_record(key, value), timestamp_ms, offset, (key, value))
