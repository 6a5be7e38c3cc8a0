"""Batches that producers send: what is refused, with which error; the recorded conversations have the rest."""

from __future__ import annotations

import pytest

from groupcoord.records.batches import LOG_APPEND_TIME, iter_batches
from groupcoord.records.compression import Compression, compress
from groupcoord.storage.errors import RefusedBatchError
from groupcoord.storage.log.batches import COPIED_BYTES, check_produced, placed, read_produced
from groupcoord.storage.log.settings import TopicLogSettings
from tests.tables import as_one_test
from tests.topic_logs.batches import NOW_MS, claiming, encoded

DAY_MS = 86_400_000


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
    """They may differ from now as the topic's configs allow; a missing time is valid."""
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


def test_a_topic_without_append_time_clears_its_bit_alone() -> None:
    data = claiming(1, compress(Compression.GZIP, bytes(7)), attributes=LOG_APPEND_TIME | Compression.GZIP)
    (found,) = iter_batches(b"".join(placed(read_produced(data), 0, 0, None)))
    found.check_crc()
    assert found.attributes == Compression.GZIP
