"""Records for a load: as a segment file holds them, but without commits that the next ones replace.

A log that was not compacted yet is mostly commits of the same few keys, and one that was is mostly commits that lie
side by side; decoding them takes most of the time. So within a run of plain commits only the last one of each key is
decoded, and those of one topic in one commit together. What a load makes of them is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from struct import Struct, unpack

from groupcoord.core.records import CommittedTopic, OffsetCommitRecord, PlainCommits
from groupcoord.log_store import LoadedCommits, LogRecord
from groupcoord.records.alike_commits import read_alike
from groupcoord.records.batches import Batch
from groupcoord.records.codec import decode_control, decode_record

RUN_KEYS_MAX = 50_000
"""Keys of one run that are held at a time."""

NEW_KEYS_SHARE = 0.9
"""If so many of a run's commits were of keys of their own, looking for those that are replaced is not worth while …"""

UNSORTED_BATCHES = 50_000
"""… in that many batches."""

_COMMIT_KEY = b"\x00\x01"
_V3, _V4 = b"\x00\x03", b"\x00\x04"
_NO_METADATA, _NO_METADATA_V3 = 1, b"\x00\x00"
_ONE_TAG_WITH_TOPIC_ID = b"\x01\x00\x10"
# A key ends with the partition, in 4 bytes. A value starts with its version, in 2, then offset and leader epoch, in 12.
_iter_offsets_and_epochs = Struct(">qi").iter_unpack


class _Alike:
    """Commits of a batch that differ in partition, offset and leader epoch alone.

    Attributes:
        like: one of them, decoded; None if they are of a version that has to be kept for each.
    """

    __slots__ = ("like",)

    def __init__(self, like: OffsetCommitRecord) -> None:
        self.like = like if like.value_version is None else None


_Entry = tuple[int, _Alike, int, bytes, bytes]
"""Log offset, what it is like, timestamp, key, value."""


def last_commits(batches: Iterable[Batch]) -> Iterator[LogRecord | LoadedCommits]:
    """Yield the records of ``batches`` in order, leaving out plain commits that a later one of the same run replaces.

    A run is ended by any record that is no plain commit: a tombstone, a group, a part of a transaction, or a commit
    with metadata.

    Raises:
        CorruptBatchError: the records of a batch don't fit.
    """
    run: dict[bytes, _Entry] = {}
    entry_count = unsorted_left = 0
    for batch in batches:
        producer_id, producer_epoch = batch.producer_id, batch.producer_epoch
        is_plain = producer_id < 0 and not batch.is_control
        decode = decode_control if batch.is_control else decode_record
        if is_plain and unsorted_left:
            together = _loaded_together(batch)
            if together is not None:
                unsorted_left -= 1
                yield from _decoded(run)
                run = {}
                yield together
                continue
        names = version = tail = None
        alike: _Alike | None = None
        entry_count += batch.record_count
        for offset, timestamp_ms, key, value in batch.records():
            if is_plain and value is not None and key is not None:
                if key[:-4] != names or value[14:] != tail or value[:2] != version:
                    names, tail, version = key[:-4], value[14:], value[:2]
                    alike = _plain_commit(key, value)
                if alike is not None:
                    run[key] = offset, alike, timestamp_ms, key, value
                    continue
            if run:
                yield from _decoded(run)
                run, entry_count = {}, 0
            key = key or b""
            record = decode(key, value, producer_id, producer_epoch)
            yield LogRecord(record, timestamp_ms, offset, (key, value))
        if len(run) > RUN_KEYS_MAX:
            unsorted_left = UNSORTED_BATCHES if len(run) >= NEW_KEYS_SHARE * entry_count else 0
            yield from _decoded(run)
            run, entry_count = {}, 0
    yield from _decoded(run)


def _plain_commit(key: bytes, value: bytes) -> _Alike | None:
    """Return what a committed offset without metadata is like; None for anything else.

    So the last one of a key is sure to replace those before it, which a value that can't be read does not.
    """
    if key[:2] != _COMMIT_KEY or not _is_sound(value):
        return None
    record = decode_record(key, value)
    return _Alike(record) if isinstance(record, OffsetCommitRecord) else None


def _is_sound(value: bytes) -> bool:
    size = len(value)
    if size == 42:
        return value[14] == _NO_METADATA and value[23:26] == _ONE_TAG_WITH_TOPIC_ID and value[:2] == _V4
    if size != 24:
        return False
    if value[:2] == _V4:
        return value[14] == _NO_METADATA and value[23] == 0
    return value[:2] == _V3 and value[14:16] == _NO_METADATA_V3


def _decoded(run: dict[bytes, _Entry]) -> Iterator[LogRecord | LoadedCommits]:
    """Yield the commits of a run, together where they are alike and nothing is missing between them."""
    for alike, entries in groupby(sorted(run.values(), key=itemgetter(0)), itemgetter(1)):
        found = list(entries)
        first_offset, last_offset = found[0][0], found[-1][0]
        if alike.like is not None and last_offset - first_offset == len(found) - 1:
            _, _, _, keys, values = zip(*found, strict=True)
            yield _together(first_offset, alike.like, keys, values)
            continue
        for offset, _, timestamp_ms, key, value in found:
            yield LogRecord(decode_record(key, value), timestamp_ms, offset, (key, value))


def _loaded_together(batch: Batch) -> LoadedCommits | None:
    """Return the commits of a batch of no transaction, if it has nothing else and all are alike; else None."""
    found = read_alike(batch)
    alike = None if found is None else _plain_commit(found.key, found.value)
    if found is None or alike is None or alike.like is None:
        return None
    topic = CommittedTopic(alike.like, found.partitions, found.offsets, found.leader_epochs)
    return LoadedCommits(batch.base_offset, PlainCommits((topic,)))


def _together(
    log_offset: int, like: OffsetCommitRecord, keys: Sequence[bytes], values: Sequence[bytes]
) -> LoadedCommits:
    partitions = unpack(f">{len(keys)}i", b"".join([key[-4:] for key in keys]))
    columns = _iter_offsets_and_epochs(b"".join([value[2:14] for value in values]))
    offsets, leader_epochs = zip(*columns, strict=True)
    return LoadedCommits(log_offset, PlainCommits((CommittedTopic(like, partitions, offsets, leader_epochs),)))
