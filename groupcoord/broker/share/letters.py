"""Encoding of dead letters (KIP-1191), by jobs: one record for each given up record.

Batches of producers may hold anything, such as small data that decompress to large. Unreadable or oversized contents
are left out of the dead letter.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from groupcoord.records.batches import BATCH_HEADER_BYTES, InvalidBatchError, iter_batches, sized
from groupcoord.schema.primitives import write_varint
from groupcoord.storage.log.batches import BATCH_RECORDS_MAX, UNREADABLE, read_payload

PORTION_BYTES = 1024 * 1024
_NOTHING = sized(None) * 2
_RECORD_BYTES = 12
"""Most further bytes of a record: its length, attributes, timestamp and offset."""

_REJECTED, _TOO_OFTEN = "Offset rejected by client.", "Offset delivery count exceeded the threshold."


class Origin(NamedTuple):
    """Partition and group of given up records."""

    topic: str
    partition: int
    group_id: str


class GivenUp(NamedTuple):
    """Record that was given up."""

    offset: int
    delivery_count: int
    is_rejected: bool


class Portion(NamedTuple):
    """Encoded dead letters, each after its length, and their number."""

    records: bytes
    record_count: int


def write_letters(
    origin: Origin, given_up: Sequence[GivenUp], data: bytes, batch_bytes_max: int
) -> tuple[list[Portion], int]:
    """Encode dead letters for the records found in ``data``, the log's batches from the first record on, perhaps
    truncated.

    Returns:
        The letters in portions, and their number.
    """
    offsets = [each.offset for each in given_up]
    contents, next_offset = _contents(data, offsets)
    # Without a batch there is nothing to read.
    count = bisect_left(offsets, next_offset) or len(given_up)
    return list(_portions(origin, given_up[:count], contents, batch_bytes_max - BATCH_HEADER_BYTES)), count


def _contents(data: bytes, offsets: Sequence[int]) -> tuple[dict[int, bytes], int]:
    """Return the encoded key and value of records by offset, and the offset up to which they were looked for."""
    contents: dict[int, bytes] = {}
    next_offset = looked_at_bytes = 0
    try:
        for batch in iter_batches(data, check_crc=False):
            # No job may take long.
            if looked_at_bytes >= PORTION_BYTES:
                break
            next_offset = batch.next_offset
            wanted = frozenset(offsets[bisect_left(offsets, batch.base_offset) : bisect_left(offsets, next_offset)])
            # The claimed number could make the job run for minutes.
            if not wanted or batch.record_count > BATCH_RECORDS_MAX:
                continue
            try:
                looked_at_bytes += len(read_payload(batch))
                records = batch.records()
                contents |= {offset: sized(key) + sized(value) for offset, _, key, value in records if offset in wanted}
            except UNREADABLE:
                looked_at_bytes += PORTION_BYTES
    # The read truncates the last batch.
    except InvalidBatchError:
        pass
    return contents, next_offset


def _portions(
    origin: Origin, given_up: Sequence[GivenUp], contents: dict[int, bytes], bytes_max: int
) -> Iterator[Portion]:
    portion: list[bytes] = []
    size_bytes, portion_bytes_max = 0, min(PORTION_BYTES, bytes_max)
    for each in given_up:
        headers = _headers(origin, each)
        content = contents.get(each.offset, _NOTHING)
        # The letter still names the record.
        if len(content) + len(headers) + _RECORD_BYTES > bytes_max:
            content = _NOTHING
        body_bytes = len(content) + len(headers) + _RECORD_BYTES
        if portion and size_bytes + body_bytes > portion_bytes_max:
            yield Portion(b"".join(portion), len(portion))
            portion, size_bytes = [], 0
        # Attributes and timestamp delta are 0, the offset delta counts from the portion's first record.
        body = b"\x00" + write_varint(0) + write_varint(len(portion)) + content + headers
        portion.append(write_varint(len(body)) + body)
        size_bytes += body_bytes
    yield Portion(b"".join(portion), len(portion))


def _headers(origin: Origin, given_up: GivenUp) -> bytes:
    headers = {
        "topic": origin.topic,
        "partition": str(origin.partition),
        "offset": str(given_up.offset),
        "group": origin.group_id,
        "delivery.count": str(given_up.delivery_count),
        "message": _REJECTED if given_up.is_rejected else _TOO_OFTEN,
    }
    encoded = [sized(f"__dlq.errors.{name}".encode()) + sized(text.encode()) for name, text in headers.items()]
    return write_varint(len(headers)) + b"".join(encoded)
