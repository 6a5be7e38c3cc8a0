"""Records for a load: as a segment file holds them, but without commits that the next ones replace.

A log that was not compacted yet is mostly commits of the same few keys, and one that was is mostly commits that lie
side by side; decoding them takes most of the time. So within a run of plain commits only the last one of each key is
decoded, and those of one topic in one commit together. What a load makes of them is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter

from groupcoord.core.records import CommittedTopic, PlainCommits
from groupcoord.log_store import LoadedCommits, LogRecord
from groupcoord.records.batches import Batch
from groupcoord.records.plain_commits import LatestCommits, PlainCommit, decode_plain_commit, read_plain_commits
from groupcoord.storage.segments import all_records

RUN_KEYS_MAX = 50_000
"""A run with more keys ends when that is noticed, which is before they are twice as many."""


def last_commits(batches: Iterable[Batch]) -> Iterator[LogRecord | LoadedCommits]:
    """Yield the records of ``batches`` in order, leaving out plain commits that a later one of the same run replaces.

    A run is ended by a batch that holds anything else: a tombstone, a group, a part of a transaction, or a commit with
    metadata.

    Raises:
        CorruptBatchError: the records of a batch don't fit.
    """
    run: LatestCommits = {}
    uncounted = 0
    for batch in batches:
        if read_plain_commits(batch, run):
            uncounted += batch.record_count
            if uncounted > RUN_KEYS_MAX:
                uncounted = 0
                if sum(map(len, run.values())) > RUN_KEYS_MAX:
                    yield from _decoded(run)
                    run = {}
            continue
        # What it holds of them comes with the rest of it.
        yield from _decoded(run, batch.base_offset)
        run, uncounted = {}, 0
        yield from all_records([batch])
    yield from _decoded(run)


def _decoded(run: LatestCommits, end_offset: int | None = None) -> Iterator[LogRecord | LoadedCommits]:
    """Yield the commits of a run in order, those before ``end_offset``."""
    found: list[tuple[int, bytes, list[PlainCommit]]] = []
    for names, of_names in run.items():
        commits = sorted(of_names.values())
        if end_offset is not None:
            commits = [commit for commit in commits if commit[0] < end_offset]
        found += [(alike[0][0], names, alike) for alike in _alike(commits)]
    found.sort(key=itemgetter(0))
    for log_offset, names, alike in found:
        like = decode_plain_commit(names, alike[0])
        if like.value_version is None:
            _, *columns, _ = zip(*alike, strict=True)
            yield LoadedCommits(log_offset, PlainCommits((CommittedTopic(like, *columns),)))
        else:
            yield from [LogRecord(decode_plain_commit(names, each), each[4].timestamp_ms, each[0]) for each in alike]


def _alike(commits: list[PlainCommit]) -> list[list[PlainCommit]]:
    """Divide commits of one topic, which come in order, into those that lie side by side and are of one kind."""
    if commits and commits[-1][0] - commits[0][0] == len(commits) - 1:
        kinds = [commit[4] for commit in commits]
        if kinds.count(kinds[0]) == len(kinds):
            return [commits]
    neighbours = groupby(enumerate(commits), lambda entry: (entry[1][0] - entry[0], entry[1][4]))
    return [[commit for _, commit in group] for _, group in neighbours]
