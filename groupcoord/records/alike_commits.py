"""Commits of one topic, which stand in a batch as records of one size: read as columns, several times as fast.

A consumer commits its partitions together, so their records differ in partition, offset and leader epoch alone. Here
that is checked and taken apart for all of them at once.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from groupcoord.records.batches import BATCH_HEADER_BYTES, CODEC_MASK, CONTROL, MAGIC_V2, TRANSACTIONAL, Batch

RECORDS_MAX = 64
"""Of more than these, the places in the batch take more than a byte."""

_OTHER_KINDS = CODEC_MASK | CONTROL | TRANSACTIONAL
_KEY_BYTES_MIN, _VALUE_BYTES_MIN, _VALUE_BYTES_MAX = 10, 24, 63
_PLACES = tuple(range(0, 2 * RECORDS_MAX, 2))  # as zig-zag varints


class AlikeCommits(NamedTuple):
    """The records of a batch, which lie side by side from its base offset on.

    Attributes:
        key: of the first record.
        value: of the first record.
        partitions: the last four bytes of each key.
        offsets: what stands in each value behind its version, where committed offsets have the offset.
        leader_epochs: what follows there.
    """

    key: bytes
    value: bytes
    partitions: tuple[int, ...]
    offsets: tuple[int, ...]
    leader_epochs: tuple[int, ...]


def read_alike(batch: Batch) -> AlikeCommits | None:
    """Return the records of a batch of no transaction if they are alike; None if not, or if it isn't sure.

    The values may be anything else of the same size as a committed offset: see to it that the first one is one.
    """
    count = batch.record_count
    if batch.magic != MAGIC_V2 or batch.attributes & _OTHER_KINDS or not 0 < count <= RECORDS_MAX:
        return None
    records = memoryview(batch.to_bytes())[BATCH_HEADER_BYTES:]
    size, rest = divmod(len(records), count)
    if rest or size < _KEY_BYTES_MIN + _VALUE_BYTES_MIN:
        return None
    # Length, attributes, timestamp, place in the batch; then the key behind its length, and the value behind its own.
    place = 3 if records[0] < 0x80 else 4
    if _varint(records, 0) != (size - place + 2, place - 2) or records[place - 1] > 0x7F:
        return None
    key_length, start = _varint(records, place + 1)
    end = start + key_length
    if not _KEY_BYTES_MIN <= key_length < size - start - _VALUE_BYTES_MIN:
        return None
    value_length, value_start = _varint(records, end)
    if (
        not _VALUE_BYTES_MIN <= value_length <= _VALUE_BYTES_MAX
        or value_start + value_length + 1 != size
        or records[size - 1]
    ):
        return None
    columns = zip(*_layout(place, end, value_start, size).iter_unpack(records), strict=True)
    heads, places, names, partitions, middles, offsets, leader_epochs, tails = columns
    if places != _PLACES[:count] or any(len(set(column)) > 1 for column in (heads, names, middles, tails)):
        return None
    key, value = bytes(records[start:end]), bytes(records[value_start : value_start + value_length])
    return AlikeCommits(key, value, partitions, offsets, leader_epochs)


@lru_cache(1_024)
def _layout(place: int, key_end: int, value_start: int, size: int) -> Struct:
    """Return what a record is made of: what all share, and between that place, partition, offset and leader epoch."""
    names, middle, tail = key_end - 4 - place - 1, value_start + 2 - key_end, size - value_start - 14
    return Struct(f">{place}sB{names}si{middle}sqi{tail}s")


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    """Return a length of one or two bytes and the position behind it; -1 for any other."""
    first = data[position]
    if first < 0x80:
        return (-1 if first & 1 else first >> 1), position + 1
    second = data[position + 1]
    value = first & 0x7F | second << 7
    return (-1 if second > 0x7F or value & 1 else value >> 1), position + 2
