"""Records for a load: as a segment file holds them, but without those that the next ones replace.

A log that was not compacted yet is mostly records with the same few keys, and one that was is mostly commits that lie
side by side; decoding them takes most of the time. So commits stay columns, and within a run of batches that hold
nothing else only the last commit of the same partitions is decoded. So it is with the records of consumer groups
(KIP-848), of which each heartbeat that changes something leaves some. What a load makes of them is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from groupcoord.core.log.records import CommitRecords
from groupcoord.log_store import LoadedCommits, LogRecord
from groupcoord.records.batches import MAGIC_V2, Batch
from groupcoord.records.codec import decode_record
from groupcoord.records.commit_batch import FoundCommit, read_commits
from groupcoord.records.group_records import KEY_STARTS
from groupcoord.storage.segments import EncodedRecord, all_records, records_of

RUN_KEYS_MAX = 50_000
"""A run with more keys ends when that is noticed, which is before they are twice as many."""

_Run = dict[tuple[tuple[str, str], tuple[int, ...]], FoundCommit]
"""By group and topic, and by the partitions, in the order of the log."""


def last_records(batches: Iterable[Batch]) -> Iterator[LogRecord | LoadedCommits]:
    """Yield the records of ``batches`` in order, leaving out those that a later one of the same run replaces.

    A run is of commits, or of records of consumer groups. It is ended by a batch that holds anything else: the other of
    these, a tombstone of an offset, a classic group, a part of a transaction.

    Raises:
        CorruptBatchError: the records of a batch don't fit.
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
    """Commits that lie one after the other, the last one of each of the same partitions."""

    def __init__(self) -> None:
        self.last: _Run = {}
        self._uncounted = 0

    def take(self, batch: Batch) -> bool:
        """Add the commits of a batch, if it holds nothing else."""
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
        """Tell whether the run has become too long, which is looked at from time to time."""
        if self._uncounted <= RUN_KEYS_MAX:
            return False
        self._uncounted = 0
        return sum(len(indexes) for _, indexes in self.last) > RUN_KEYS_MAX

    def end(self) -> Iterator[LoadedCommits]:
        """Decode what is left, and begin another run."""
        last, self.last = self.last, {}
        self._uncounted = 0
        for commit in last.values():
            yield LoadedCommits(commit.log_offset, CommitRecords((commit.to_topic(),)))


class _GroupRun:
    """Records of groups that lie one after the other, the last one of each key."""

    def __init__(self) -> None:
        self.last: dict[bytes, EncodedRecord] = {}

    def take(self, batch: Batch) -> bool:
        """Add the records of a batch, if it holds nothing else."""
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
        """Tell whether the run has become too long."""
        return len(self.last) > RUN_KEYS_MAX

    def end(self) -> Iterator[LogRecord]:
        """Decode what is left, and begin another run."""
        last, self.last = self.last, {}
        for key, (offset, timestamp_ms, _, value) in last.items():
            yield LogRecord(decode_record(key, value), timestamp_ms, offset, (key, value))
