"""Logs on disk: they read as those in memory do, also when they were closed, killed or tampered with in between."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import evolve

from groupcoord.core.log.records import TransactionMarker
from groupcoord.records.batches import BATCH_HEADER_BYTES, iter_batches
from groupcoord.storage.errors import FailedLogError, RefusedBatchError
from groupcoord.storage.log.batches import COPIED_BYTES
from groupcoord.storage.log.file_segment import AHEAD_BYTES_MAX, READ_PLACES_MAX
from groupcoord.storage.log.memory_log import PartitionLog
from groupcoord.storage.log.producers import (
    BadSnapshotError,
    ProducerEntry,
    read_snapshot,
    snapshot_path,
    write_snapshot,
)
from groupcoord.storage.log.settings import LogMemory, TopicLogSettings
from tests.tables import as_one_test
from tests.topic_logs.batches import NOW_MS, TOPIC, find_time, numbered, produced
from tests.topic_logs.disk import MEMORY_BYTES, Disk

SMALL = evolve(TopicLogSettings(), segment_bytes=20_000)


class Writer:
    """Writes the same to a log on disk and to one in memory: plain batches, transactions, markers."""

    def __init__(self, disk: Disk, seed: int) -> None:
        self.disk = disk
        self.mirror = PartitionLog(LogMemory(MEMORY_BYTES))
        self.chance = random.Random(seed)
        self._sequences: dict[int, int] = {}
        self._open: set[int] = set()

    def write(self, count: int) -> None:
        for number in range(count):
            producer_id = self.chance.randrange(1, 5)
            at_ms = NOW_MS + self.chance.randrange(100_000)
            if producer_id in self._open and self.chance.random() < 0.4:
                marker = TransactionMarker(producer_id, 0, committed=self.chance.random() < 0.5)
                for log in (self.disk.log(), self.mirror):
                    log.append_marker(marker, at_ms, SMALL)
                self._open.discard(producer_id)
                continue
            if self.chance.random() < 0.4:
                size = self.chance.choice((10, 200, 3_000))
                batch = produced(*[self.chance.randbytes(size)] * self.chance.randint(1, 5), at_ms=at_ms)
            else:
                sequence = self._sequences.get(producer_id, 0)
                batch = numbered(2, sequence, (producer_id, 0), is_transactional=True, at_ms=at_ms)
                self._sequences[producer_id] = sequence + 2
                self._open.add(producer_id)
            for log in (self.disk.log(), self.mirror):
                log.append(batch, SMALL, NOW_MS + number)

    def compare(self) -> None:
        """All reads of both logs are equal."""
        log, mirror, chance = self.disk.log(), self.mirror, self.chance
        assert (log.start_offset, log.end_offset) == (mirror.start_offset, mirror.end_offset)
        assert log.last_stable_offset == mirror.last_stable_offset
        assert log.producers.last_entries() == mirror.producers.last_entries()
        for offset in {*chance.choices(range(log.start_offset, log.end_offset + 1), k=40), log.end_offset}:
            for end in (log.end_offset, log.last_stable_offset):
                size = chance.choice((1, 5_000, 1 << 30))
                found, expected = (
                    one.read(offset, end, size, takes_first=True, lists_aborted=True) for one in (log, mirror)
                )
                assert b"".join(found.parts) == b"".join(expected.parts)
                assert found.aborted == expected.aborted
                assert log.readable_bytes(offset, end) == mirror.readable_bytes(offset, end)
            time_ms = NOW_MS + chance.randrange(110_000)
            assert find_time(log, time_ms) == find_time(mirror, time_ms)
        if not log.start_offset:  # else it depends on when segments are deleted
            assert find_time(log, log.max_timestamp_ms) == find_time(mirror, mirror.max_timestamp_ms)


def test_memory_and_disk_say_the_same(tmp_path: Path) -> None:
    """Over many segments and restarts of both kinds, with few file descriptors."""
    writer = Writer(Disk(tmp_path), 1)
    for number in range(12):
        writer.write(60)
        writer.compare()
        if number % 2:
            writer.disk.restart()
        else:
            writer.disk.kill()
        writer.compare()
        if number % 4 == 3:
            offset = writer.disk.log().end_offset - 50
            assert writer.disk.log().delete_before(offset) == writer.mirror.delete_before(offset)
    assert len(writer.disk.log()._segments) > 2


@as_one_test
@pytest.mark.parametrize("bytes_max", [0, BATCH_HEADER_BYTES, 100, 3_000, 7_000, 40_000, AHEAD_BYTES_MAX + 1])
def test_reading_batch_by_batch(tmp_path: Path, bytes_max: int) -> None:
    """Reads from the end of the last batch equal those of memory, for any size and end offset."""
    writer = Writer(Disk(tmp_path), 8)
    writer.write(200)
    log, mirror = writer.disk.log(), writer.mirror
    for end_offset in (log.end_offset, log.end_offset // 2):
        for takes_first in (True, False):
            offset = 0
            while offset < end_offset:
                found, expected = (
                    one.read(offset, end_offset, bytes_max, takes_first=takes_first) for one in (log, mirror)
                )
                assert b"".join(found.parts) == b"".join(expected.parts)
                assert found.size_bytes == expected.size_bytes
                whole = b"".join(mirror.read(offset, end_offset, 0, takes_first=True).parts)
                (first,) = iter_batches(whole)
                offset = first.next_offset


@pytest.mark.parametrize("behind", [0, 1, 3])
def test_a_batch_and_its_header_are_read_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behind: int) -> None:
    """Sequential reading takes one file read per batch, also with a second reader further behind."""
    disk = Disk(tmp_path)
    log, batch = disk.log(), produced(bytes(9_000))
    for _ in range(9):
        log.append(batch, evolve(SMALL, segment_bytes=1_000_000), NOW_MS)
    sizes: list[int] = []
    pread = os.pread

    def counted(descriptor: int, size: int, position: int) -> bytes:
        sizes.append(size)
        return pread(descriptor, size, position)

    monkeypatch.setattr("os.pread", counted)
    for first in range(5):
        for offset in {first, first + behind}:
            (part,) = log.read(offset, 9, len(batch.data), takes_first=True).parts
            assert part[BATCH_HEADER_BYTES:] == batch.data[BATCH_HEADER_BYTES:]
    # The reader ahead, who begins in the middle, looks for its first batch with the index.
    assert len(sizes) == (10 if behind else 5)
    assert set(sizes[2:]) == {len(batch.data)}


def test_many_readers_of_a_segment(tmp_path: Path) -> None:
    """However many read on from places of their own, each gets its batches, and few places are kept."""
    writer = Writer(Disk(tmp_path), 8)
    writer.write(200)
    log, mirror = writer.disk.log(), writer.mirror
    offsets = [
        batch.base_offset
        for batch in iter_batches(b"".join(mirror.read(0, log.end_offset, 1 << 30, takes_first=True).parts))
    ]
    for shift in range(2):
        for offset in offsets[shift::2]:
            found, expected = (one.read(offset, log.end_offset, 100, takes_first=True) for one in (log, mirror))
            assert b"".join(found.parts) == b"".join(expected.parts)
    assert len(offsets) > 10 * READ_PLACES_MAX
    assert max(len(segment._read_places) for segment in log._segments) == READ_PLACES_MAX


def test_a_clean_start_reads_no_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cleanly closed log of any size is opened from its indexes and snapshot."""
    writer = Writer(Disk(tmp_path), 2)
    writer.write(200)
    writer.disk.restart()
    read_bytes = []
    pread = __import__("os").pread
    monkeypatch.setattr("os.pread", lambda fd, size, at: read_bytes.append(size) or pread(fd, size, at))
    assert writer.disk.log().end_offset == writer.mirror.end_offset
    assert sum(read_bytes) < 50_000
    monkeypatch.undo()
    writer.compare()


@as_one_test
@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot"])
@pytest.mark.parametrize(
    "tamper",
    [Path.unlink, lambda path: path.write_bytes(b"\0" * 24), lambda path: os.truncate(path, 5)],
    ids=["missing", "blank", "truncated"],
)
def test_what_is_missing_is_made_anew(tmp_path: Path, suffix: str, tamper: Callable[[Path], None]) -> None:
    """Indexes and snapshots that are missing, truncated or too large, as a broker makes them, are rebuilt."""
    writer = Writer(Disk(tmp_path), 3)
    writer.write(150)
    writer.disk.logs.close()
    for path in writer.disk.folder().glob(f"*{suffix}"):
        tamper(path)
    writer.disk._open()
    writer.compare()


def test_a_snapshot_with_a_changed_bit_is_damaged(tmp_path: Path) -> None:
    write_snapshot(tmp_path, 7, [ProducerEntry(1, 0, 2, 3, 0, NOW_MS, 0, -1)])
    path = snapshot_path(tmp_path, 7)
    intact = int.from_bytes(path.read_bytes())
    for bit in range(8 * path.stat().st_size):
        path.write_bytes((intact ^ 1 << bit).to_bytes(path.stat().st_size))
        with pytest.raises(BadSnapshotError):
            read_snapshot(tmp_path, 7)


def test_indexes_of_an_earlier_life_are_of_no_sealed_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a sealed segment's indexes can't be written, those from before its last batches are not used for its times."""
    disk = Disk(tmp_path)
    disk.log().append(produced(b"old", at_ms=NOW_MS), SMALL, NOW_MS)
    disk.restart()
    disk.log().append(produced(b"new", at_ms=NOW_MS + 5_000), SMALL, NOW_MS)
    monkeypatch.setattr("groupcoord.storage.log.file_segment.replace_file", _no_room)
    disk.log().append(produced(b"x" * 19_900), SMALL, NOW_MS)
    monkeypatch.undo()
    disk.kill()
    first, _ = disk.log()._segments
    assert first.max_timestamp_ms == NOW_MS + 5_000


def test_the_largest_timestamp_in_the_index_is_kept_over_a_restart(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    for at_ms in (NOW_MS + 1, NOW_MS + 5, NOW_MS + 9, NOW_MS, NOW_MS):
        disk.log().append(produced(b"x" * 5_000, at_ms=at_ms), TopicLogSettings(), NOW_MS)
    disk.restart()
    assert disk.log().max_timestamp_ms == NOW_MS + 9


def _no_room(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_the_indexes_of_the_last_segment_are_there_after_a_kill(tmp_path: Path) -> None:
    """A broker that continues the log finds all its indexes, and no error in them."""
    disk = Disk(tmp_path)
    for at_ms in (NOW_MS, NOW_MS + 1):
        disk.log().append(produced(b"x" * 3_000, at_ms=at_ms), SMALL, NOW_MS)
    disk.restart()
    indexes = sorted(path.name for path in disk.folder().glob("*index"))
    disk.log().append(produced(b"x", at_ms=NOW_MS + 2), SMALL, NOW_MS)
    disk.kill()
    disk.log()
    assert sorted(path.name for path in disk.folder().glob("*index")) == indexes != []
    assert not any(path.stat().st_size for path in disk.folder().glob("*index"))


def test_a_repetition_is_known_after_a_restart(tmp_path: Path) -> None:
    """The last five batches of a producer are known after any end of the process, in whatever segments they are."""
    disk = Disk(tmp_path)
    tiny = evolve(SMALL, segment_bytes=150)
    batches = [numbered(1, sequence) for sequence in range(7)]
    offsets = [disk.log().append(batch, tiny, NOW_MS).base_offset for batch in batches]
    for end in (disk.restart, disk.kill):
        end()
        assert [disk.log().append(batch, tiny, NOW_MS).base_offset for batch in batches[2:]] == offsets[2:]
        with pytest.raises(RefusedBatchError, match="the next sequence of producer 7 is 7"):
            disk.log().append(batches[1], tiny, NOW_MS)


def test_a_start_that_was_moved_stays(tmp_path: Path) -> None:
    """DeleteRecords outlives a kill, and what is not needed any more is deleted, but for the last segment."""
    disk = Disk(tmp_path)
    for _ in range(10):
        disk.log().append(produced(b"x" * 9_000), SMALL, NOW_MS)
    assert len(list(disk.folder().glob("*.log"))) == 5
    disk.log().delete_before(5)
    disk.kill()
    assert (disk.log().start_offset, len(list(disk.folder().glob("*.log")))) == (5, 3)
    disk.log().delete_before(10)
    disk.restart()
    assert (disk.log().start_offset, disk.log().end_offset) == (10, 10)
    assert disk.log().append(produced(b"y"), SMALL, NOW_MS).base_offset == 10


def test_deleted_topics_leave_nothing(tmp_path: Path) -> None:
    """Their folders go; what a crash left half deleted goes at the next start."""
    disk = Disk(tmp_path)
    disk.log().append(produced(b"x"), SMALL, NOW_MS)
    disk.log().delete_before(1)
    (tmp_path / "old-3.5f3b5f3b5f3b5f3b5f3b5f3b5f3b5f3b-delete").mkdir()
    disk.logs.delete(TOPIC)
    assert disk.logs.memory.used_bytes == 0
    disk.kill()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log-start-offset-checkpoint"]
    assert disk.log().end_offset == 0


# ---------------------------------------------------------------- trouble


def test_a_lost_file_fails_the_log_until_it_is_back(tmp_path: Path) -> None:
    """It never counts as empty; other logs continue, and nothing is acknowledged meanwhile."""
    disk = Disk(tmp_path)
    disk.log().append(produced(b"a"), SMALL, NOW_MS)
    disk.log(1).append(produced(b"b"), SMALL, NOW_MS)
    (segment,) = disk.folder().glob("*.log")
    log, away = disk.log(), segment.rename(tmp_path / "away")
    disk.logs.check_some()
    with pytest.raises(FailedLogError, match="deleted or moved away"):
        log.append(produced(b"c"), SMALL, NOW_MS)
    with pytest.raises(FailedLogError, match="is missing; put it back"):
        disk.log()
    assert disk.log(1).append(produced(b"d"), SMALL, NOW_MS + 1_000).base_offset == 1
    away.rename(segment)
    with pytest.raises(FailedLogError):
        disk.log()  # not tried again yet
    disk.now_ms += 1_000
    log = disk.log()
    assert log.append(produced(b"e"), SMALL, NOW_MS).base_offset == log.end_offset - 1
    assert any("is used again" in line for line in disk.lines)


def test_short_reads_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``pread`` may return any part of the requested bytes."""
    writer = Writer(Disk(tmp_path), 8)
    writer.write(60)
    pread = os.pread
    monkeypatch.setattr("os.pread", lambda fd, size, at: pread(fd, min(size, BATCH_HEADER_BYTES - 1), at))
    writer.compare()


@pytest.mark.parametrize("offset", [0, 2])
def test_a_read_of_a_truncated_file_fails_the_log(tmp_path: Path, offset: int) -> None:
    """A batch that lacks its end or its header is not taken for one; what is left can be read after a new start."""
    disk = Disk(tmp_path)
    log, batch = disk.log(), produced(b"x" * 100)
    for _ in range(3):
        log.append(batch, SMALL, NOW_MS)
    (segment,) = disk.folder().glob("*.log")
    os.truncate(segment, 2 * len(batch.data) + 9 if offset else len(batch.data) - 1)
    with pytest.raises(FailedLogError, match="it was truncated"):
        log.read(offset, 3, 1, takes_first=True)
    with pytest.raises(FailedLogError, match="all below 3 was acknowledged"):
        disk.log()
    disk.kill()
    assert disk.log().end_offset == offset


@pytest.mark.parametrize("size_bytes", [1, COPIED_BYTES])
def test_a_full_disk_refuses_and_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size_bytes: int) -> None:
    """KAFKA_STORAGE_ERROR and a line; a partial batch is truncated, and the log continues when there is space."""
    disk = Disk(tmp_path)
    log = disk.log()
    log.append(produced(b"a"), SMALL, NOW_MS)
    size = next(disk.folder().glob("*.log")).stat().st_size
    write = os.write
    first = produced(b"v" * size_bytes, producer_id=7, producer_epoch=0, base_sequence=0)
    monkeypatch.setattr("os.write", lambda fd, data: write(fd, data[:20]))
    monkeypatch.setattr("os.writev", lambda fd, pieces: write(fd, pieces[0][:20]))
    with pytest.raises(RefusedBatchError) as refused:
        log.append(first, SMALL, NOW_MS)
    monkeypatch.undo()
    assert refused.value.error_code.name == "KAFKA_STORAGE_ERROR"
    assert "only 20 of" in disk.lines[-1]
    assert next(disk.folder().glob("*.log")).stat().st_size == size
    assert disk.log() is log
    assert log.append(first, SMALL, NOW_MS).base_offset == 1
    disk.kill()
    assert disk.log().end_offset == 2


def test_records_are_flushed_as_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a number of records or a time; a failed fsync makes the log load again."""
    flushed = []
    monkeypatch.setattr("os.fsync", flushed.append)
    disk = Disk(tmp_path)
    disk.log().append(produced(b"a"), SMALL, NOW_MS)
    flushed.clear()  # of files that are written once
    disk.log().append(produced(b"a", b"b"), evolve(SMALL, flush_messages=4), NOW_MS)
    assert len(flushed) == 0
    disk.log().append(produced(b"a"), evolve(SMALL, flush_messages=4), NOW_MS)
    assert len(flushed) == 2  # the file, and once its name
    late = evolve(SMALL, flush_ms=1_000)
    disk.log().append(produced(b"a"), late, NOW_MS)
    for after_ms in (999, 1_000, 2_000):
        disk.now_ms = NOW_MS + after_ms
        disk.logs.flush_due(TOPIC, late)
    assert len(flushed) == 3

    def fail(descriptor: int) -> None:
        raise OSError(5, "the disk is gone")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(FailedLogError, match="fsync failed"):
        disk.log().append(produced(b"z"), evolve(SMALL, flush_messages=1), NOW_MS)
    monkeypatch.undo()
    assert disk.log().end_offset == 6


def test_little_memory_makes_indexes_coarse(tmp_path: Path) -> None:
    """A log of any size can be kept with next to no memory."""
    disk = Disk(tmp_path, memory_bytes=3_000)
    mirror = Writer(disk, 6).mirror
    for _ in range(60):
        for log in (disk.log(), mirror):
            log.append(produced(b"x" * 5_000), TopicLogSettings(), NOW_MS)
    assert disk.logs.memory.used_bytes <= 3_000
    assert bytes(disk.log().read(30, 60, 1, takes_first=True).parts[0]) == bytes(
        mirror.read(30, 60, 1, takes_first=True).parts[0]
    )


def test_in_a_broker_s_directory_its_own_note_counts(tmp_path: Path) -> None:
    """A broker may have been killed there since the last server was stopped, and leaves that one's note alone."""
    disk = Disk(tmp_path)
    disk.log().append(produced(b"a"), SMALL, NOW_MS)
    (tmp_path / "meta.properties").touch()
    disk.restart()
    assert not disk.directory.was_clean
    disk.logs.close()
    (tmp_path / ".kafka_cleanshutdown").touch()
    disk._open()
    assert disk.directory.was_clean
    assert disk.log().end_offset == 1
