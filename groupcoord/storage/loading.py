"""Records for a load: as a segment file holds them, but without commits that the next ones replace.

A log that was not compacted yet is mostly commits of the same few keys, and one that was is mostly commits that lie
side by side; decoding them takes most of the time. So commits stay columns, and within a run of batches that hold
nothing else only the last commit of the same partitions is decoded. What a load makes of them is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from groupcoord.core.records import CommitRecords
from groupcoord.log_store import LoadedCommits, LogRecord
from groupcoord.records.batches import Batch
from groupcoord.records.commit_batch import FoundCommit, read_commits
from groupcoord.storage.segments import all_records

RUN_KEYS_MAX = 50_000
"""A run with more keys ends when that is noticed, which is before they are twice as many."""

_Run = dict[tuple[tuple[str, str], tuple[int, ...]], FoundCommit]
"""By group and topic, and by the partitions, in the order of the log."""


def last_commits(batches: Iterable[Batch]) -> Iterator[LogRecord | LoadedCommits]:
    """Yield the records of ``batches`` in order, leaving out commits that a later one of the same run replaces.

    A run is ended by a batch that holds anything else: a tombstone, a group, a part of a transaction.

    Raises:
        CorruptBatchError: the records of a batch don't fit.
    """
    run: _Run = {}
    uncounted = 0
    for batch in batches:
        found = read_commits(batch)
        if found is None:
            yield from _decoded(run)
            run, uncounted = {}, 0
            yield from all_records([batch])
            continue
        for commit in found:
            key = commit[1:3]
            run.pop(key, None)
            run[key] = commit
        uncounted += batch.record_count
        if uncounted > RUN_KEYS_MAX:
            uncounted = 0
            if sum(len(indexes) for _, indexes in run) > RUN_KEYS_MAX:
                yield from _decoded(run)
                run = {}
    yield from _decoded(run)


def _decoded(run: _Run) -> Iterator[LoadedCommits]:
    for commit in run.values():
        yield LoadedCommits(commit.log_offset, CommitRecords((commit.to_topic(),)))
