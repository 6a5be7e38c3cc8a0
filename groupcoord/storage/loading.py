"""Records for a load: as a segment file holds them, but without commits that the next ones replace.

A log that was not compacted yet is mostly commits of the same few keys, and decoding them takes most of the time. So
within a run of plain commits only the last one of each key is decoded. What a load makes of them is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from groupcoord.log_store import LogRecord
from groupcoord.records.batches import Batch
from groupcoord.records.codec import decode_control, decode_record

RUN_KEYS_MAX = 50_000
"""Keys of one run that are held at a time."""

_COMMIT_KEY = b"\x00\x01"
_V3, _V4 = b"\x00\x03", b"\x00\x04"
_NO_METADATA, _NO_METADATA_V3 = 1, b"\x00\x00"
_ONE_TAG_WITH_TOPIC_ID = b"\x01\x00\x10"

_Entry = tuple[int, int, bytes | None, bytes | None]


def last_commits(batches: Iterable[Batch]) -> Iterator[LogRecord]:
    """Yield the records of ``batches`` in order, leaving out plain commits that a later one of the same run replaces.

    A run is ended by any record that is no plain commit: a tombstone, a group, a part of a transaction, or a commit
    with metadata.

    Raises:
        CorruptBatchError: the records of a batch don't fit.
    """
    run: dict[bytes, _Entry] = {}
    for batch in batches:
        producer_id, producer_epoch = batch.producer_id, batch.producer_epoch
        is_plain = producer_id < 0 and not batch.is_control
        decode = decode_control if batch.is_control else decode_record
        for entry in batch.records():
            offset, timestamp_ms, key, value = entry
            if is_plain and value is not None and key is not None and key[:2] == _COMMIT_KEY and _is_sound(value):
                run[key] = entry
                continue
            if run:
                yield from _decoded(run)
                run = {}
            key = key or b""
            record = decode(key, value, producer_id, producer_epoch)
            yield LogRecord(record, timestamp_ms, offset, (key, value))
        if len(run) > RUN_KEYS_MAX:
            yield from _decoded(run)
            run = {}
    yield from _decoded(run)


def _is_sound(value: bytes) -> bool:
    """Tell whether a value is sure to be a committed offset, without metadata.

    So the last one of a key is sure to replace those before it, which a value that can't be read does not.
    """
    size = len(value)
    if size == 42:
        return value[14] == _NO_METADATA and value[23:26] == _ONE_TAG_WITH_TOPIC_ID and value[:2] == _V4
    if size != 24:
        return False
    if value[:2] == _V4:
        return value[14] == _NO_METADATA and value[23] == 0
    return value[:2] == _V3 and value[14:16] == _NO_METADATA_V3


def _decoded(run: dict[bytes, _Entry]) -> Iterator[LogRecord]:
    for offset, timestamp_ms, key, value in sorted(run.values()):
        key = key or b""
        yield LogRecord(decode_record(key, value), timestamp_ms, offset, (key, value))
