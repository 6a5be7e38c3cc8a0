"""Batches that producers send: what is refused, with which error; the recorded conversations have the rest."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from groupcoord.records.batches import iter_batches
from groupcoord.storage.errors import RefusedBatchError
from groupcoord.storage.log_settings import TopicLogSettings
from groupcoord.storage.produced_batch import COPIED_BYTES, check_produced, placed, read_produced
from tests.tables import as_one_test
from tests.topic_logs.batches import NOW_MS, encoded

GOOD = encoded(b"a", b"b")
DAY_MS = 86_400_000


def patched(position: int, content: bytes, *, is_sealed: bool = True) -> bytes:
    data = bytearray(GOOD)
    data[position : position + len(content)] = content
    if is_sealed:
        data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


@as_one_test
@pytest.mark.parametrize(
    ("data", "error"),
    [
        (None, "INVALID_RECORD"),
        (b"", "INVALID_RECORD"),
        (GOOD[:30], "INVALID_RECORD"),
        (GOOD[:-1], "INVALID_RECORD"),
        (GOOD + GOOD, "INVALID_RECORD"),
        (GOOD + b"\x00", "INVALID_RECORD"),
        (patched(16, b"\x01", is_sealed=False), "INVALID_RECORD"),
        (patched(16, b"\x03", is_sealed=False), "CORRUPT_MESSAGE"),
        (patched(8, struct.pack(">i", -5), is_sealed=False), "CORRUPT_MESSAGE"),
        (patched(0, struct.pack(">q", 7)), "INVALID_RECORD"),
        (patched(70, b"x", is_sealed=False), "CORRUPT_MESSAGE"),
        (patched(57, struct.pack(">i", 3)), "INVALID_RECORD"),
        (patched(57, struct.pack(">i", 0)), "INVALID_RECORD"),
        (patched(23, struct.pack(">i", -1)), "INVALID_RECORD"),
        (patched(21, struct.pack(">h", 0x20)), "INVALID_RECORD"),
        (patched(21, struct.pack(">h", 0x05)), "UNKNOWN_SERVER_ERROR"),
        (patched(43, struct.pack(">qhi", 1, 0, -1)), "INVALID_RECORD"),
    ],
)
def test_refused(data: bytes | None, error: str) -> None:
    """One batch of format v2 with a header that fits, or an error, as recorded from Kafka 4.4."""
    with pytest.raises(RefusedBatchError) as refused:
        check_produced(read_produced(data), TopicLogSettings(), NOW_MS)
    assert refused.value.error_code.name == error


@as_one_test
@pytest.mark.parametrize(
    ("at_ms", "settings", "is_taken"),
    [
        (NOW_MS + 3_600_000, TopicLogSettings(), True),
        (NOW_MS + 3_600_001, TopicLogSettings(), False),
        (0, TopicLogSettings(), True),
        (-1, TopicLogSettings(timestamp_before_max_ms=DAY_MS), True),
        (NOW_MS - DAY_MS, TopicLogSettings(timestamp_before_max_ms=DAY_MS), True),
        (NOW_MS - DAY_MS - 1, TopicLogSettings(timestamp_before_max_ms=DAY_MS), False),
        (NOW_MS + 2 * DAY_MS, TopicLogSettings(uses_append_time=True), True),
    ],
)
def test_timestamps(at_ms: int, settings: TopicLogSettings, is_taken: bool) -> None:
    """They may lie as far from now as the topic's settings say; no time at all is fine."""
    batch = read_produced(encoded(b"a", at_ms=at_ms))
    if is_taken:
        check_produced(batch, settings, NOW_MS)
    else:
        with pytest.raises(RefusedBatchError, match="timestamps"):
            check_produced(batch, settings, NOW_MS)


@as_one_test
@pytest.mark.parametrize("size_bytes", [10, COPIED_BYTES - 100, COPIED_BYTES, 3 * COPIED_BYTES])
@pytest.mark.parametrize("append_time_ms", [None, NOW_MS + 5])
def test_its_place(size_bytes: int, append_time_ms: int | None) -> None:
    """In the log a batch has its offset and leader epoch, perhaps another time, a CRC that fits, and its records."""
    data = encoded(b"a", b"b" * size_bytes)
    batch = read_produced(memoryview(data))
    pieces = placed(batch, 77, 5, append_time_ms)
    assert len(pieces) == 1 + (len(data) >= COPIED_BYTES)
    (found,) = iter_batches(b"".join(pieces))
    found.check_crc()
    assert (found.base_offset, found.leader_epoch, found.record_count) == (77, 5, 2)
    assert found.max_timestamp_ms == (NOW_MS + 1_000 if append_time_ms is None else append_time_ms)
    assert [value for _, _, _, value in found.records()] == [b"a", b"b" * size_bytes]
    assert bytes(batch.data) == data


def test_sizes() -> None:
    """max.message.bytes counts all of a batch."""
    batch = read_produced(GOOD)
    check_produced(batch, TopicLogSettings(max_message_bytes=len(GOOD)), NOW_MS)
    with pytest.raises(RefusedBatchError, match=r"max\.message\.bytes"):
        check_produced(batch, TopicLogSettings(max_message_bytes=len(GOOD) - 1), NOW_MS)
