"""The log of one partition: what is appended is read, from anywhere and in any size, within a memory."""

from __future__ import annotations

import random

import pytest
from crc32c import crc32c

from groupcoord.core.log.records import TransactionMarker
from groupcoord.errors import ErrorCode
from groupcoord.log_store import StorageError
from groupcoord.records.batches import iter_batches
from groupcoord.records.compression import Compression
from groupcoord.records.share_state import decode_share_state
from groupcoord.storage.errors import RefusedBatchError
from groupcoord.storage.log.batches import ProducedBatch, read_produced
from groupcoord.storage.log.memory_log import PartitionLog
from groupcoord.storage.log.memory_segment import SEGMENT_BYTES
from groupcoord.storage.log.producers import PRODUCERS_MAX
from groupcoord.storage.log.settings import LOG_BYTES, PRODUCER_BYTES, LogMemory, TopicLogSettings
from groupcoord.storage.stores.topics import TopicLogStore, batches_of
from groupcoord.storage.topic_logs import TopicLogs
from tests.topic_logs.batches import NOW_MS, TOPIC, find_time, numbered, produced

SETTINGS = TopicLogSettings()
MEMORY_BYTES = 16 * 1024 * 1024


@pytest.fixture
def memory() -> LogMemory:
    return LogMemory(MEMORY_BYTES)


@pytest.fixture
def log(memory: LogMemory) -> PartitionLog:
    return PartitionLog(memory)


def read(log: PartitionLog, offset: int, bytes_max: int = 1 << 30, *, takes_first: bool = True) -> bytes:
    return b"".join(log.read(offset, log.end_offset, bytes_max, takes_first=takes_first).parts)


def append_for_ever(log: PartitionLog, batch: ProducedBatch) -> None:
    while True:
        log.append(batch, SETTINGS, NOW_MS)


def fill(log: PartitionLog, seed: int, batches: int) -> list[bytes]:
    """Append random batches; return them as they must stand in the log."""
    chance = random.Random(seed)
    expected = []
    for _ in range(batches):
        values = [chance.randbytes(chance.choice((3, 50, 700, 90_000))) for _ in range(chance.randint(1, 4))]
        before = log.end_offset
        appended = log.append(produced(*values), SETTINGS, NOW_MS)
        assert appended.base_offset == before
        data = bytearray(produced(*values).data)
        data[:8], data[12:16] = before.to_bytes(8, "big"), bytes(4)
        expected.append(bytes(data))
    return expected


def test_every_offset_gives_its_batch_and_all_behind_it(log: PartitionLog) -> None:
    """Offsets and the leader's epoch stand in the header, the rest is as it came; over many segments."""
    expected = fill(log, 1, 120)
    assert len(log._segments) > 3
    offset = 0
    for place, batch in enumerate(expected):
        (found,) = iter_batches(batch)
        for inside in range(offset, found.next_offset):
            assert read(log, inside, 1) == batch
        assert read(log, offset) == b"".join(expected[place:])
        assert log.readable_bytes(offset, log.end_offset) == sum(map(len, expected[place:]))
        offset = found.next_offset
    assert (offset, read(log, offset)) == (log.end_offset, b"")


def test_sizes_cut_where_kafka_cuts(log: PartitionLog) -> None:
    """The limit cuts a batch in the middle; but the first comes whole or, if it need not come, not at all."""
    whole = b"".join(fill(log, 2, 60))
    first = len(read(log, 0, 1))
    for size in (0, 1, first - 1, first, first + 1, SEGMENT_BYTES - 1, SEGMENT_BYTES + 17, len(whole), len(whole) + 1):
        assert read(log, 0, size) == whole[: max(size, first)]
        assert read(log, 0, size, takes_first=False) == (whole[:size] if size >= first else b"")


def test_what_was_read_stays_while_the_log_grows(log: PartitionLog) -> None:
    """A reader that takes its time has what it read, though the segment got a larger buffer, or is gone."""
    log.append(produced(b"first"), SETTINGS, NOW_MS)
    (part,) = log.read(0, 1, 1 << 20, takes_first=True).parts
    before = bytes(part)
    fill(log, 3, 20)
    log.delete_before(log.end_offset)
    assert bytes(part) == before


def test_the_start_goes_forward_only(log: PartitionLog, memory: LogMemory) -> None:
    """Deleting gives memory back, segment by segment, and all of it at the end."""
    fill(log, 4, 80)
    used = [memory.used_bytes]
    for offset in (0, 10, 5, 100, log.end_offset):
        start = log.start_offset
        assert log.delete_before(offset) == max(start, offset)
        used.append(memory.used_bytes)
    assert used == sorted(used, reverse=True)
    assert used[-1] == 0
    assert log.append(produced(b"next"), SETTINGS, NOW_MS).base_offset == log.start_offset


def test_times(log: PartitionLog) -> None:
    """The first record at or behind a time, as far as the start allows; of the largest time the first record."""
    log.append(produced(b"a", b"b", b"c", at_ms=NOW_MS), SETTINGS, NOW_MS)
    log.append(produced(b"d", b"e", at_ms=NOW_MS + 9_000, step_ms=-3_000), SETTINGS, NOW_MS)
    log.append(produced(b"f", at_ms=NOW_MS + 5_000), SETTINGS, NOW_MS)
    found = [find_time(log, NOW_MS + time_ms) for time_ms in (-1, 0, 1, 2_001, 9_000, 9_001)]
    assert [None if record is None else record.offset for record in found] == [0, 0, 1, 3, 3, None]
    assert find_time(log, log.max_timestamp_ms) == (NOW_MS + 9_000, 3)
    log.delete_before(4)
    assert find_time(log, 0) == (NOW_MS + 6_000, 4)
    log.delete_before(6)
    assert (find_time(log, 0), log.max_timestamp_ms) == (None, -1)


def test_records_that_are_none(log: PartitionLog) -> None:
    """A compressed batch is accepted unread; a search by time in it reports the error."""
    data = bytearray(produced(b"abc").data)
    data[22] |= Compression.GZIP
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    log.append(read_produced(bytes(data)), SETTINGS, NOW_MS)
    with pytest.raises(RefusedBatchError) as refused:
        find_time(log, 0)
    assert refused.value.error_code is ErrorCode.UNKNOWN_SERVER_ERROR


# ---------------------------------------------------------------- memory


def test_a_full_memory_refuses_and_keeps(memory: LogMemory, log: PartitionLog) -> None:
    """Beyond the limit appends fail; old records stay, and deletion frees memory."""
    large = produced(b"x" * 900_000)
    with pytest.raises(RefusedBatchError) as refused:
        append_for_ever(log, large)
    assert refused.value.error_code is ErrorCode.POLICY_VIOLATION
    assert "records.memory.max.bytes" in refused.value.reason
    assert log.end_offset > 10
    assert memory.used_bytes <= memory.bytes_max
    log.delete_before(log.end_offset)
    log.append(large, SETTINGS, NOW_MS)


@pytest.mark.parametrize(("position", "value"), [(8, b"\x7f"), (30, b"?")], ids=["length", "contents"])
def test_a_malformed_batch_fails_a_load(log: PartitionLog, position: int, value: bytes) -> None:
    """The records before it are read."""
    log.append(produced(b"sound"), SETTINGS, NOW_MS)
    data = bytearray(produced(b"damaged").data)
    data[7:8] = b"\x01"
    data[position : position + 1] = value
    log.append_encoded(bytes(data), 1, NOW_MS, SETTINGS)
    store = TopicLogStore(lambda index: log, lambda index: True, lambda: SETTINGS, decode_share_state)
    records = iter(store.read(0))
    assert next(records).offset == 0
    with pytest.raises(StorageError, match="log partition 0 can't be read"):
        next(records)


def test_the_last_records_were_compacted(log: PartitionLog) -> None:
    """A load ends where nothing is left."""
    log.append(produced(b"kept"), SETTINGS, NOW_MS)
    log.end_offset = 5
    assert [batch.base_offset for batch in batches_of(log)] == [0]


def test_a_refused_producer_is_not_known() -> None:
    """A refused first batch leaves no producer state."""
    memory = LogMemory(PRODUCER_BYTES + 100)
    log = PartitionLog(memory)
    with pytest.raises(RefusedBatchError):
        log.append(numbered(1, 0), SETTINGS, NOW_MS)
    assert (memory.used_bytes, len(log.producers)) == (0, 0)


def test_markers_have_a_reserve() -> None:
    """A transaction can end though the memory is full, but not without bound."""
    memory = LogMemory(200_000)
    log = PartitionLog(memory)
    log.append(numbered(1, 0, is_transactional=True), SETTINGS, NOW_MS)
    with pytest.raises(RefusedBatchError):
        append_for_ever(log, produced(b"x" * 500))
    assert log.append_marker(TransactionMarker(7, 0, committed=True), NOW_MS) is ErrorCode.NONE
    assert log.last_stable_offset == log.end_offset
    codes = {log.append_marker(TransactionMarker(7, 0, committed=True), NOW_MS) for _ in range(500)}
    assert ErrorCode.KAFKA_STORAGE_ERROR in codes


def test_producers_are_bounded(memory: LogMemory, log: PartitionLog) -> None:
    """Beyond the bound the least recent producer is dropped, unless it has an open transaction."""
    log.append(numbered(1, 0, (0, 0), is_transactional=True), SETTINGS, NOW_MS)
    for producer_id in range(1, PRODUCERS_MAX + 1):
        log.producers.reserve(producer_id)
    assert len(log.producers) == PRODUCERS_MAX
    assert log.producers.has_open(0, 0)
    assert 1 not in log.producers.last_entries()


def test_logs_of_a_deleted_topic_give_everything_back() -> None:
    """Readers are notified, and a topic of the same name starts empty."""
    logs = TopicLogs(1 << 20)
    log = logs.log(TOPIC, 0)
    told = []
    log.watchers[told.append] = None
    log.append(numbered(3, 0), SETTINGS, NOW_MS)
    logs.delete(TOPIC)
    assert (logs.memory.used_bytes, log.is_closed, told) == (0, True, [log, log])
    assert logs.log(TOPIC, 0).end_offset == 0


def test_logs_are_bounded() -> None:
    """The logs of any number of partitions fit into the memory; one too many accepts no records."""
    logs = TopicLogs(10 * LOG_BYTES)
    kept = [logs.log(TOPIC, index) for index in range(50)]
    assert logs.memory.used_bytes == 10 * LOG_BYTES
    assert [logs.log(TOPIC, index) is log for index, log in enumerate(kept)] == [True] * 10 + [False] * 40
    with pytest.raises(RefusedBatchError):
        kept[-1].append(produced(b"a"), SETTINGS, NOW_MS)
    assert kept[-1].append_marker(TransactionMarker(7, 0, committed=True), NOW_MS) is ErrorCode.KAFKA_STORAGE_ERROR
    logs.delete(TOPIC)
    assert logs.memory.used_bytes == 0


# ---------------------------------------------------------------- transactions


def test_the_last_stable_offset(log: PartitionLog) -> None:
    """It is the start of the oldest open transaction, whichever others end, and never below the log start."""
    one, two = (1, 0), (2, 0)
    log.append(produced(b"plain"), SETTINGS, NOW_MS)
    log.append(numbered(2, 0, one, is_transactional=True), SETTINGS, NOW_MS)
    log.append(numbered(1, 0, two, is_transactional=True), SETTINGS, NOW_MS)
    assert log.last_stable_offset == 1
    log.append_marker(TransactionMarker(2, 0, committed=False), NOW_MS)
    assert (log.last_stable_offset, log.end_offset) == (1, 5)
    log.delete_before(2)
    assert log.last_stable_offset == 2
    log.append_marker(TransactionMarker(1, 0, committed=True), NOW_MS)
    assert log.last_stable_offset == log.end_offset == 6


def test_aborted_transactions_against_a_plain_list() -> None:
    chance = random.Random(5)
    log = PartitionLog(LogMemory(MEMORY_BYTES))
    open_at: dict[int, int] = {}
    sequences: dict[int, int] = {}
    aborted: list[tuple[int, int, int]] = []
    for _ in range(600):
        producer_id = chance.randrange(5)
        if producer_id in open_at and chance.random() < 0.4:
            committed = chance.random() < 0.5
            if not committed:
                aborted.append((producer_id, open_at[producer_id], log.end_offset))
            log.append_marker(TransactionMarker(producer_id, 0, committed=committed), NOW_MS)
            del open_at[producer_id]
        else:
            open_at.setdefault(producer_id, log.end_offset)
            sequence = sequences.get(producer_id, 0)
            batch = numbered(2, sequence, (producer_id, 0), is_transactional=True)
            log.append(batch, SETTINGS, NOW_MS)
            sequences[producer_id] = sequence + 2
    stable = log.last_stable_offset
    assert stable == min(open_at.values(), default=log.end_offset)
    for offset in range(0, stable, 7):
        found = log.read(offset, stable, chance.choice((1, 500, 5_000)), takes_first=True, lists_aborted=True)
        batches = list(iter_batches(b"".join(found.parts)[: _whole(found.parts)]))
        end = batches[-1].next_offset
        listed = {transaction[:3] for transaction in found.aborted}
        assert {entry for entry in aborted if entry[2] >= offset and entry[1] < end} <= listed
        assert all(last_offset >= offset for _, _, last_offset in listed)


def _whole(parts: tuple[memoryview, ...]) -> int:
    """Return how many bytes of what was read are whole batches."""
    data = b"".join(parts)
    position = 0
    while position + 12 <= len(data):
        size = int.from_bytes(data[position + 8 : position + 12], "big") + 12
        if position + size > len(data):
            break
        position += size
    return position
