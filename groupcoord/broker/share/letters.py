"""What goes to a topic for records that a share group has given up (KIP-1191): a letter for each, as jobs write them.

A producer may have put anything into a batch, and little that becomes much: what can't be read, is too much to be read
or is larger than the topic takes is left out of the letter.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from groupcoord.records.batches import BATCH_HEADER_BYTES, Batch, InvalidBatchError, iter_batches, sized
from groupcoord.schema.primitives import MalformedError, read_varint, write_varint
from groupcoord.storage.log.batches import BATCH_RECORDS_MAX, UNREADABLE, read_payload, record_heads

PORTION_BYTES = 1024 * 1024
"""So much is appended at a time, or sent to who does that."""

_NULL = sized(None)
_NOTHING = _NULL * 2
_RECORD_BYTES = 12
"""What a letter has besides at the most: its length, attributes, time and place."""

_REJECTED, _TOO_OFTEN = "Offset rejected by client.", "Offset delivery count exceeded the threshold."


class Origin(NamedTuple):
    """Where records are from that were given up, and whose they were."""

    topic: str
    partition: int
    group_id: str


class GivenUp(NamedTuple):
    """A record that was given up.

    Attributes:
        offset: where it is.
        delivery_count: how often it was given out.
        is_rejected: a member said that nobody should try again.
    """

    offset: int
    delivery_count: int
    is_rejected: bool


class Portion(NamedTuple):
    """Some letters.

    Attributes:
        records: each behind its length.
        record_count: how many there are.
    """

    records: bytes
    record_count: int


def write_letters(
    origin: Origin, given_up: Sequence[GivenUp], data: bytes, batch_bytes_max: int
) -> tuple[list[Portion], int]:
    """Write letters about those records that were looked for in some batches; where there are none, about all.

    Args:
        origin: where the records are from.
        given_up: the records, by their offsets; one at least.
        data: batches of the log, from the first of the records on; the last one may be cut off.
        batch_bytes_max: how large a batch of letters may be.

    Returns:
        the letters in portions, and how many there are.
    """
    offsets = [each.offset for each in given_up]
    contents, next_offset = _contents(data, offsets)
    count = bisect_left(offsets, next_offset) or len(given_up)
    return list(_portions(origin, given_up[:count], contents, batch_bytes_max - BATCH_HEADER_BYTES)), count


def _contents(data: bytes, offsets: Sequence[int]) -> tuple[dict[int, bytes], int]:
    """Return key and value of some records, as they go into letters, and up to which offset these were looked for.

    That ends where as much as a portion has been looked at: the rest is for another job.
    """
    contents: dict[int, bytes] = {}
    next_offset = looked_at_bytes = 0
    try:
        for batch in iter_batches(data, check_crc=False):
            if looked_at_bytes >= PORTION_BYTES:
                break
            next_offset = batch.next_offset
            wanted = offsets[bisect_left(offsets, batch.base_offset) : bisect_left(offsets, next_offset)]
            if not wanted or batch.record_count > BATCH_RECORDS_MAX:
                continue
            try:
                payload = read_payload(batch)
                looked_at_bytes += len(payload)
                contents.update(_contents_in(batch, payload, wanted))
            except UNREADABLE:
                looked_at_bytes += PORTION_BYTES  # it may have been much
    except InvalidBatchError:
        pass  # the last one is cut off
    return contents, next_offset


def _contents_in(batch: Batch, payload: bytes, wanted: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    offsets = frozenset(wanted)
    for head in record_heads(payload, batch.record_count):
        offset = batch.base_offset + head.offset_delta
        if offset in offsets:
            key, position = _field(payload, head.key_position, head.end)
            value, _ = _field(payload, position, head.end)
            yield offset, key + value
        if offset >= wanted[-1]:
            return


def _field(payload: bytes, position: int, record_end: int) -> tuple[bytes, int]:
    """Return a key or a value, behind its length, and where it ends."""
    size, position = read_varint(payload, position)
    if size < 0:
        return _NULL, position
    end = position + size
    if end > record_end:
        raise MalformedError(f"a field of {size} bytes, {record_end - position} left")
    return sized(payload[position:end]), end


def _portions(
    origin: Origin, given_up: Sequence[GivenUp], contents: dict[int, bytes], bytes_max: int
) -> Iterator[Portion]:
    portion: list[bytes] = []
    size_bytes, portion_bytes_max = 0, min(PORTION_BYTES, bytes_max)
    for each in given_up:
        headers = _headers(origin, each)
        content = contents.get(each.offset, _NOTHING)
        if len(content) + len(headers) + _RECORD_BYTES > bytes_max:
            content = _NOTHING
        body_bytes = len(content) + len(headers) + _RECORD_BYTES
        if portion and size_bytes + body_bytes > portion_bytes_max:
            yield Portion(b"".join(portion), len(portion))
            portion, size_bytes = [], 0
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
    told = [sized(f"__dlq.errors.{name}".encode()) + sized(text.encode()) for name, text in headers.items()]
    return write_varint(len(headers)) + b"".join(told)
