"""Compaction of topics: what stays, what readers find in a log with gaps, and what a crash in the middle of it leaves.

What Kafka does with the same logs is in ``test_compaction_beside_kafka.py``.
"""

from __future__ import annotations

import errno
import gc
import gzip
import io
import random
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from attrs import evolve
from crc32c import crc32c

from groupcoord.core.log.records import TransactionMarker
from groupcoord.records.batches import Batch, Buffer, delete_horizon_ms, encode_batch, iter_batches
from groupcoord.records.compression import Compression
from groupcoord.storage.compaction import compactable_logs
from groupcoord.storage.compaction.cleaner import RETRY_MS
from groupcoord.storage.log.batches import read_produced
from groupcoord.storage.log.memory_log import PartitionLog
from groupcoord.storage.log.settings import TopicLogSettings
from groupcoord.storage.topic_logs import TopicLogs
from groupcoord.testing.logs import encode_any_batch
from tests.samples import seeds
from tests.storage.dying_disk import DyingDisk, PowerFailure
from tests.tables import as_one_test
from tests.topic_logs.batches import NOW_MS, TOPIC, claiming, encoded, find_time
from tests.topic_logs.disk import MEMORY_BYTES, Disk

SETTINGS = evolve(TopicLogSettings(), is_compacted=True, is_deleted=False, min_cleanable_ratio=0.0, segment_bytes=700)
RETENTION_MS = SETTINGS.delete_retention_ms


class Found(NamedTuple):
    """A record."""

    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes | None


class SmallFile(io.BytesIO):
    """A file on a disk that has room for 50 bytes."""

    def write(self, data: Buffer) -> int:
        if self.tell() + len(memoryview(data)) > 50:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)


class CompactedLog:
    """The log of a partition, in memory or on disk, and everything that was written to it."""

    def __init__(self, path: Path | None, settings: TopicLogSettings = SETTINGS) -> None:
        self.disk = None if path is None else Disk(path)
        self.settings = settings
        self.written: list[Found] = []
        self.aborted: set[int] = set()
        self._memory_logs = TopicLogs(MEMORY_BYTES)

    @property
    def logs(self) -> TopicLogs:
        return self._memory_logs if self.disk is None else self.disk.logs

    @property
    def log(self) -> PartitionLog:
        return self.logs.log(TOPIC, 0)

    def put(self, *records: tuple[bytes, bytes | None], at_ms: int = NOW_MS, producer_id: int = -1) -> None:
        """Write a batch, in a transaction if it has a producer."""
        end_offset = self.log.end_offset
        data = encode_batch(
            0,
            [(key, value, at_ms) for key, value in records],
            leader_epoch=-1,
            producer_id=producer_id,
            producer_epoch=min(producer_id, 0),
            base_sequence=self._next_sequence(producer_id),
            is_transactional=producer_id >= 0,
        )
        self.log.append(read_produced(data), self.settings, NOW_MS)
        self.written += [Found(end_offset + number, at_ms, *record) for number, record in enumerate(records)]

    def _next_sequence(self, producer_id: int) -> int:
        known = {
            producer.producer_id: producer.last_sequence for producer in self.log.producers.last_entries().values()
        }
        return -1 if producer_id < 0 else known.get(producer_id, -1) + 1

    def end(self, producer_id: int, *, committed: bool) -> None:
        begin = self.log.producers.last_entries()[producer_id].first_offset
        if not committed:
            self.aborted |= {
                offset
                for batch in self.batches()
                if batch.producer_id == producer_id and batch.base_offset >= begin
                for offset in range(batch.base_offset, batch.next_offset)
            }
        self.log.append_marker(TransactionMarker(producer_id, 0, committed), NOW_MS, self.settings)

    def compact(self, now_ms: int = NOW_MS, budget: int = 100) -> None:
        while self.compact_some(now_ms, budget):
            pass

    def compact_some(self, now_ms: int = NOW_MS, budget: int = 1) -> bool:
        return self.logs.compact_some(lambda: [(TOPIC, self.settings)], now_ms, budget)

    def batches(self, offset: int = 0) -> list[Batch]:
        found = self.log.read(offset, self.log.end_offset, 1 << 30, takes_first=True)
        return list(iter_batches(b"".join(found.parts)))

    def left(self) -> list[Found]:
        """Return the records that a reader from the start finds."""
        return [
            Found(offset, timestamp_ms, key or b"", value)
            for batch in self.batches(self.log.start_offset)
            if not batch.is_control
            for offset, timestamp_ms, key, value in batch.records()
        ]

    def latest(self) -> dict[bytes, bytes | None]:
        """Return the last value of each key, of what was not aborted."""
        return {record.key: record.value for record in self.written if record.offset not in self.aborted}

    @property
    def active_base(self) -> int:
        return self.log.groups()[-1][0].base_offset


@pytest.fixture(params=["memory", "disk"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> CompactedLog:
    """An empty log."""
    return CompactedLog(None if request.param == "memory" else tmp_path)


def write_some(world: CompactedLog, chance: random.Random, count: int) -> None:
    """Write what chance wants; transactions that were begun are ended."""
    open_producers: set[int] = set()
    for number in range(count):
        producer_id = chance.choice([-1, -1, 1, 2])
        if producer_id in open_producers and chance.random() < 0.4:
            open_producers.discard(producer_id)
            world.end(producer_id, committed=chance.random() < 0.6)
            continue
        keys = [b"k%d" % chance.randrange(9) for _ in range(chance.randint(1, 4))]
        records = [(key, None if chance.random() < 0.2 else chance.randbytes(20)) for key in keys]
        world.put(*records, at_ms=NOW_MS + chance.randrange(100) * 1_000 + number, producer_id=producer_id)
        open_producers |= {producer_id} - {-1}
    for producer_id in sorted(open_producers):
        world.end(producer_id, committed=True)


def check_reads(world: CompactedLog) -> None:
    """Reads of a log with gaps equal a walk over its batches."""
    log, batches, left = world.log, world.batches(), world.left()
    for before, after in pairwise(batches):
        assert before.next_offset <= after.base_offset
    for offset in range(log.end_offset):
        expected = next(batch for batch in batches if batch.next_offset > offset)
        (found, *_) = iter_batches(b"".join(log.read(offset, log.end_offset, 1, takes_first=True).parts))
        assert found.base_offset == expected.base_offset
        behind = [batch for batch in batches if batch.next_offset > offset]
        assert log.readable_bytes(offset, log.end_offset) == sum(batch.size_bytes for batch in behind)
    for time_ms in range(NOW_MS, NOW_MS + 110_000, 3_000):
        found = find_time(log, time_ms)
        first = next((record for record in left if record.timestamp_ms >= time_ms), None)
        assert found is None or first is not None or found.offset not in {record.offset for record in left}
        if first is not None:
            assert found is not None
            assert found.offset <= first.offset


@pytest.mark.parametrize("seed", seeds(3))
def test_the_last_value_of_each_key_stays(world: CompactedLog, seed: int) -> None:
    """With passes at any time between the writes, a reader from the start gets the same state as without them."""
    chance = random.Random(seed)
    world.settings = evolve(SETTINGS, dedupe_buffer_bytes=chance.choice([300, 10**6]))
    for _ in range(4):
        write_some(world, chance, 40)
        for _ in range(chance.randrange(60)):
            world.compact_some()
    write_some(world, chance, 10)
    world.compact()
    left = world.left()
    assert set(left) <= set(world.written)
    visible = {record.key: record.value for record in left if record.offset not in world.aborted}
    assert visible == world.latest()
    old = [record.key for record in left if record.offset < world.active_base]
    assert len(old) == len(set(old))
    check_reads(world)


@pytest.mark.parametrize(
    ("times_ms", "is_left"), [((0,), True), ((0, 999), True), ((0, 1_000), False), ((5_000, 5_999), True)]
)
def test_tombstones_stay_for_their_retention(world: CompactedLog, times_ms: tuple[int, ...], is_left: bool) -> None:
    """The first pass sets the delete horizon of a tombstone, and a pass after that time drops it (KIP-534)."""
    world.settings = evolve(SETTINGS, delete_retention_ms=1_000)
    world.put((b"k", b"v"))
    world.put((b"k", None))
    for time_ms in times_ms:
        for _ in range(4):
            world.put((b"other", b"x" * 300))
        world.compact(NOW_MS + time_ms)
    assert (Found(1, NOW_MS, b"k", None) in world.left()) == is_left
    assert (delete_horizon_ms(world.batches()[0]) == NOW_MS + times_ms[0] + 1_000) == is_left


def test_memory_is_given_back(tmp_path: Path) -> None:
    """A log in memory takes less when it was compacted, and small segments become one; producers may write again."""
    world = CompactedLog(None)
    for number in range(400):
        world.put((b"k%d" % (number % 5), b"x" * 100))
    before, segments = world.logs.memory.used_bytes, len(world.log.segments)
    world.compact()
    assert world.logs.memory.used_bytes < before / 20
    assert len(world.log.segments) < segments / 20


def test_only_what_its_settings_want_is_compacted(world: CompactedLog) -> None:
    """Nothing below the dirty ratio, and no young records."""
    for number in range(100):
        world.put((b"k", b"x" * 50), at_ms=NOW_MS + number * 1_000)
    world.settings = evolve(SETTINGS, min_cleanable_ratio=1.0)
    assert not world.compact_some(NOW_MS + 100_000)
    world.settings = evolve(SETTINGS, min_compaction_lag_ms=50_000)
    world.compact(NOW_MS + 100_000)
    young = [record for record in world.left() if record.timestamp_ms > NOW_MS + 50_000]
    assert len(young) == 49
    assert len(world.left()) < 60


@pytest.mark.parametrize("is_reopened", [False, True])
def test_overdue_records_are_compacted_whatever_the_ratio(world: CompactedLog, is_reopened: bool) -> None:
    """``max.compaction.lag.ms`` counts from the largest timestamp of the first batch of a dirty segment."""
    world.settings = evolve(SETTINGS, min_cleanable_ratio=1.0, max_compaction_lag_ms=1_000)
    # Two batches fit into a segment.
    for number in range(6):
        world.put((b"k", b"x" * 200), (b"k", b"y"), at_ms=NOW_MS + (100, 7, 400, 300, 400, 300)[number])
    if is_reopened and world.disk is not None:
        world.disk.restart()
    world.compact(NOW_MS + 1_100)
    assert len(world.left()) == 12
    world.compact(NOW_MS + 1_101)
    assert [record.offset for record in world.left()] == [7, 8, 9, 10, 11]


def test_records_without_a_timestamp_are_never_overdue(world: CompactedLog) -> None:
    world.settings = evolve(SETTINGS, min_cleanable_ratio=1.0, max_compaction_lag_ms=1_000)
    for _ in range(6):
        world.put((b"k", b"x" * 200), at_ms=-1)
    assert not world.compact_some(NOW_MS + 1_000_000)


def test_old_records_of_a_compacted_topic_roll_the_segment(world: CompactedLog) -> None:
    """The last segment is never compacted, so it is rolled after ``max.compaction.lag.ms``."""
    world.settings = evolve(SETTINGS, segment_bytes=1 << 20, max_compaction_lag_ms=5_000)
    for seconds in range(12):
        world.put((b"k", b"x"), at_ms=NOW_MS + seconds * 1_000)
    assert [group[0].base_offset for group in world.log.groups()] == [0, 6]


@pytest.mark.parametrize("codec", list(Compression))
def test_what_stays_is_as_it_was(world: CompactedLog, codec: Compression) -> None:
    """A batch of which a part goes keeps its codec, its records' headers and times, its offsets and its producer."""
    records = [(0, NOW_MS, b"k0", b"a" * 50), (1, NOW_MS + 5, b"k1", b"b" * 50), (2, NOW_MS + 9, b"k2", b"c" * 50)]
    fields = {"leader_epoch": -1, "producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    headers = ((b"name", b"value"), (b"null", None))
    data = encode_any_batch(records, base_offset=0, last_offset=2, codec=codec, headers=headers, **fields)
    world.log.append(read_produced(data), world.settings, NOW_MS)
    for _ in range(9):
        world.put((b"k1", b"x" * 100), (b"other", b"x"))
    world.compact()
    batch = world.batches()[0]
    assert batch.compression is codec
    assert (batch.base_offset, batch.next_offset, batch.base_sequence, batch.producer_id) == (0, 3, 0, 7)
    assert [*batch.records()] == [records[0], records[2]]
    assert batch.payload(10_000).count(b"\x08name\x0avalue\x08null\x01") == 2
    assert batch.max_timestamp_ms == NOW_MS + 9


def test_a_producer_goes_on_where_it_was(world: CompactedLog) -> None:
    """Its last batch stays, if necessary without records, so its next sequence is known after loading."""
    world.put((b"k", b"1"), producer_id=7)
    world.end(7, committed=True)
    for _ in range(9):
        world.put((b"k", b"x" * 200))
    world.compact()
    first = world.batches()[0]
    assert (first.base_offset, first.record_count) == (0, 0)
    if world.disk is not None:
        for snapshot in world.disk.folder().glob("*.snapshot"):
            snapshot.unlink()
        world.disk.kill()
    known = {producer.producer_id: producer.last_sequence for producer in world.log.producers.last_entries().values()}
    assert known == {7: 0}


def test_records_can_be_deleted_meanwhile(world: CompactedLog) -> None:
    """DeleteRecords during a pass ends that pass; the rest is compacted later."""
    for number in range(100):
        world.put((b"k%d" % (number % 3), b"x" * 50))
    for _ in range(60):
        assert world.compact_some()
    world.log.delete_before(50)
    world.compact()
    assert world.log.start_offset == 50
    assert [record.offset for record in world.left() if record.offset >= 50][-1] == 99
    assert len(world.left()) < 15
    if world.disk is not None:
        assert not [*world.disk.folder().glob("*.cleaned"), *world.disk.folder().glob("*.swap")]
        world.disk.kill()
        assert world.log.start_offset == 50


def test_both_policies(world: CompactedLog) -> None:
    """With ``compact,delete`` what was compacted goes for its age, segments that compaction has emptied with it."""
    world.settings = evolve(SETTINGS, is_deleted=True, retention_ms=1_000)
    for number in range(60):
        world.put((b"k", b"x" * 50), at_ms=NOW_MS + number * 1_000)
    world.compact()
    world.log.retain(world.settings, NOW_MS + 70_000)
    assert world.left() == []
    assert world.log.start_offset == world.log.end_offset == 60


def test_a_topic_of_the_same_name_begins_anew(tmp_path: Path) -> None:
    """The compacted position is deleted with the topic."""
    world = CompactedLog(tmp_path)
    for _ in range(40):
        world.put((b"k", b"x" * 100))
    world.compact()
    assert "orders 0 " in (tmp_path / "cleaner-offset-checkpoint").read_text()
    world.logs.delete(TOPIC)
    assert "orders" not in (tmp_path / "cleaner-offset-checkpoint").read_text()


def test_a_batch_that_holds_no_records_stays(world: CompactedLog) -> None:
    """Batches are taken as they come while a topic isn't compacted, and nothing that can't be read is dropped."""
    plain = evolve(world.settings, is_compacted=False)
    broken = encode_any_batch([(0, NOW_MS, b"k", b"v")], base_offset=0, last_offset=0, codec=Compression.GZIP)
    damaged = broken[:61] + b"no gzip" + broken[68:]
    world.log.append(read_produced(_sealed(damaged)), plain, NOW_MS)
    for _ in range(9):
        world.put((b"k", b"x" * 100))
    world.compact()
    assert world.batches()[0].to_bytes()[61:68] == b"no gzip"
    assert len(world.batches()) < 8


def test_a_batch_of_too_many_records_stays(world: CompactedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded; everything else is compacted."""
    monkeypatch.setattr("groupcoord.storage.compaction.compaction_pass.BATCH_RECORDS_MAX", 50)
    for count in (50, 51, 50):
        world.put(*[(b"k", b"x")] * count)
    world.put((b"k", b"last" * 100))
    world.compact()
    assert [batch.record_count for batch in world.batches()][:2] == [51, 1]


def test_what_decompresses_slowly_is_compacted_in_portions() -> None:
    """A batch of gzip with a thousand empty members takes as many portions, each time that it is looked into."""
    world = CompactedLog(None, evolve(SETTINGS, segment_bytes=30_000))
    plain = evolve(world.settings, is_compacted=False)
    packed = gzip.compress(encoded(b"v")[61:], mtime=0) + gzip.compress(b"", mtime=0) * 1_000
    world.log.append(read_produced(claiming(1, packed, attributes=Compression.GZIP)), plain, NOW_MS)
    for _ in range(9):
        world.put((b"k", b"x" * 9_000))
    portions = 0
    while world.compact_some():
        portions += 1
    assert portions > 2_000
    assert world.left()[0].value == b"x" * 9_000


def _sealed(data: bytes) -> bytes:
    return data[:17] + crc32c(data[21:]).to_bytes(4, "big") + data[21:]


# ---------------------------------------------------------------- crashes


@as_one_test
@pytest.mark.parametrize("step", range(14))
def test_a_machine_that_dies_loses_nothing(tmp_path: Path, step: int) -> None:
    """After a crash at any rename or deletion the log opens with the same content."""
    world = CompactedLog(tmp_path)
    write_some(world, random.Random(step), 60)
    assert world.disk is not None
    with DyingDisk(step), suppress(PowerFailure):
        world.compact()
    cleaner = world.logs._cleaner
    assert cleaner is not None
    cleaner._running = None
    end_offset = world.log.end_offset
    world.disk.kill()
    assert world.log.end_offset == end_offset
    visible = {record.key: record.value for record in world.left() if record.offset not in world.aborted}
    assert visible == world.latest()
    world.compact()
    assert {record.key: record.value for record in world.left() if record.offset not in world.aborted} == visible
    check_reads(world)


def test_what_abandoned_logs_have_begun_is_not_deleted_later(tmp_path: Path) -> None:
    """When logs are abandoned in the middle of a pass, the next process's pass over the same segments is its own."""

    def begin() -> CompactedLog:
        world = CompactedLog(tmp_path)
        for _ in range(30):
            world.put((b"k", b"x" * 100))
        while not list(tmp_path.rglob("*.cleaned")):
            assert world.compact_some()
        return world

    world = begin()
    world.logs.abandon()
    next_world = begin()
    del world
    gc.collect()
    assert len(list(tmp_path.rglob("*.cleaned"))) == 1
    next_world.compact()
    assert len(next_world.left()) < 10


def test_a_swap_that_fails_half_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is unusable until it is opened again, which repairs its files."""
    world = CompactedLog(tmp_path)
    for number in range(60):
        world.put((b"k%d" % (number % 3), b"x" * 50))

    def fail(folder: Path, group: list[int]) -> None:
        (folder / f"{group[-1]:020d}.log").unlink()
        raise OSError("Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("groupcoord.storage.compaction.compactable_logs.finish_swap", fail)
        world.compact()
    assert world.log.end_offset == 60
    assert {record.key for record in world.left()} == {b"k0", b"k1", b"k2"}
    check_reads(world)


def append_segment(world: CompactedLog, partition_index: int) -> None:
    data = encode_batch(0, [(b"k", b"v", NOW_MS)], leader_epoch=-1, base_sequence=-1)
    settings = evolve(SETTINGS, segment_bytes=len(data))
    world.logs.log(TOPIC, partition_index).append(read_produced(data), settings, NOW_MS)


@pytest.fixture
def two_logs(tmp_path: Path) -> CompactedLog:
    """Two partitions on disk with six segments each."""
    world = CompactedLog(tmp_path)
    for _ in range(6):
        for index in range(2):
            append_segment(world, index)
    return world


def segment_counts(world: CompactedLog) -> list[int]:
    return [len(world.logs.log(TOPIC, index).segments) for index in range(2)]


@pytest.mark.parametrize("has_wrong_crc", [True, False])
def test_a_corrupt_log_waits_for_its_next_segment(
    two_logs: CompactedLog, caplog: pytest.LogCaptureFixture, has_wrong_crc: bool
) -> None:
    """It is reported once and other logs are compacted; after its next segment compaction is retried."""
    assert two_logs.disk is not None
    path = two_logs.disk.folder() / f"{1:020}.log"
    intact = path.read_bytes()
    # No CRC covers the base offset, which would make an old record the last one of its key.
    path.write_bytes(intact[:-1] + b"?" if has_wrong_crc else (1_000).to_bytes(8, "big") + intact[8:])
    two_logs.compact()
    assert segment_counts(two_logs) == [6, 2]
    assert not two_logs.compact_some(NOW_MS + 2 * RETRY_MS)
    assert caplog.text.count("orders-0 can't be compacted") == 1
    path.write_bytes(intact)
    append_segment(two_logs, 0)
    two_logs.compact()
    assert segment_counts(two_logs) == [2, 2]


def test_a_disk_error_is_retried_after_a_while(
    two_logs: CompactedLog, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without room for the rewritten segment nothing changes, other logs are compacted, and appends go on."""
    assert two_logs.disk is not None
    opened = open

    def full(path: Path, mode: str) -> object:
        return SmallFile(path.touch() or b"") if "orders-0" in str(path) else opened(path, mode)

    before = {path: path.read_bytes() for path in two_logs.disk.folder().glob("*.log")}
    monkeypatch.setattr(compactable_logs, "open", full, raising=False)
    two_logs.compact()
    assert "orders-0 can't be compacted: [Errno 28] No space left on device" in caplog.text
    assert {path: path.read_bytes() for path in two_logs.disk.folder().glob("*.log*")} == before
    assert segment_counts(two_logs) == [6, 2]
    monkeypatch.undo()
    append_segment(two_logs, 0)
    two_logs.compact(NOW_MS + RETRY_MS - 1)
    assert segment_counts(two_logs) == [7, 2]
    two_logs.compact(NOW_MS + RETRY_MS)
    assert segment_counts(two_logs) == [2, 2]


def test_a_log_without_readable_timestamps_is_left_alone(tmp_path: Path) -> None:
    world = CompactedLog(tmp_path)
    for _ in range(40):
        world.put((b"k", b"x" * 100))
    assert world.disk is not None
    world.disk.restart()
    world.settings = evolve(SETTINGS, min_compaction_lag_ms=1)
    assert world.log.end_offset == 40
    for suffix in ("log", "timeindex"):
        (world.disk.folder() / f"{0:020d}.{suffix}").unlink()
    world.compact(NOW_MS + 1_000)
    assert len(list(world.disk.folder().glob("*.log"))) > 5
