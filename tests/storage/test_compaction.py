"""What compaction keeps, what it drops and when, what it never touches, and what it leaves after a crash."""

from __future__ import annotations

import asyncio
import errno
import gc
import io
from pathlib import Path

import pytest

from groupcoord import Config, SystemClock
from groupcoord.broker.broker import make_broker
from groupcoord.core.log.records import OffsetCommitRecord, OffsetTombstone, Record
from groupcoord.host.server import Server
from groupcoord.log_store import StorageError
from groupcoord.records.batches import Batch, Buffer, encode_batch, iter_batches
from groupcoord.storage.compaction import compactable_logs
from groupcoord.storage.compaction.cleaner import RETRY_MS
from groupcoord.storage.compaction.compactable_logs import CompactionSettings
from groupcoord.storage.errors import CorruptLogError
from groupcoord.storage.stores.segments import SegmentLogStore
from tests.storage.storage_logs import RollingStore, append, log_file, read

RETENTION_MS = 1_000


def commit(partition: int, offset: int, producer_id: int = -1) -> OffsetCommitRecord:
    return OffsetCommitRecord("g", "t", partition, offset, producer_id=producer_id, producer_epoch=min(producer_id, 0))


def tombstone(partition: int) -> OffsetTombstone:
    return OffsetTombstone("g", "t", partition)


def open_store(directory: Path, segment_bytes: int = 1, **settings: float) -> SegmentLogStore:
    chosen = CompactionSettings(0.0, RETENTION_MS)._replace(**settings)
    return RollingStore(directory, roll_bytes=segment_bytes, segment_bytes=10**6, compaction=chosen)


def compact(store: SegmentLogStore, now_ms: int = 0) -> None:
    while store.compact_some(now_ms):
        pass


def compacted(directory: Path, *appends: list[Record], now_ms: tuple[int, ...] = (0,)) -> list[tuple[int, Record]]:
    """Append, compact at each of the times after one more append, and return what is left of ``appends``."""
    end = sum(len(records) for records in appends)
    with open_store(directory) as store:
        for records in appends:
            append(store, *records)
        for number, time_ms in enumerate(now_ms):
            append(store, commit(1_000 + number, 0))
            compact(store, time_ms)
        return [(offset, record) for offset, record in read(store) if offset < end]


def batches(directory: Path) -> list[Batch]:
    files = sorted((directory / "__consumer_offsets-3").glob("*.log"))
    return [batch for path in files for batch in iter_batches(path.read_bytes())]


def test_segments_are_put_together(tmp_path: Path) -> None:
    """Small segments become one; the one that is written to stays as it is."""
    with open_store(tmp_path) as store:
        for offset in range(50):
            append(store, commit(0, offset))
        active = log_file(tmp_path, 49).read_bytes()
        compact(store)
        assert sorted(tmp_path.rglob("*.log")) == [log_file(tmp_path), log_file(tmp_path, 49)]
        assert log_file(tmp_path, 49).read_bytes() == active
        assert read(store) == [(48, commit(0, 48)), (49, commit(0, 49))]
        assert append(store, commit(0, 50)) == 50
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n1\n__consumer_offsets 3 49\n"


def test_tombstones_stay_for_their_retention(tmp_path: Path) -> None:
    """The first compaction sets the delete horizon, those after it keep the tombstone until then (KIP-534)."""
    history: list[list[Record]] = [[commit(0, 1)], [tombstone(0)]]
    for number, (times, expected) in enumerate(
        (
            ((0,), [(1, tombstone(0))]),
            ((0, 999), [(1, tombstone(0))]),
            ((0, 1_000), []),
            ((5_000, 5_999), [(1, tombstone(0))]),
        )
    ):
        directory = tmp_path / str(number)
        assert compacted(directory, *history, now_ms=times) == expected
        if expected:
            batch = next(b for b in batches(directory) if b.base_offset == 1)
            assert batch.base_timestamp_ms == times[0] + RETENTION_MS
            assert [record[1] for record in batch.records()] == [1_000]


def test_memory_for_keys_is_bounded(tmp_path: Path) -> None:
    """When the keys don't fit into the buffer, several passes do it."""
    with open_store(tmp_path, dedupe_buffer_bytes=1_000) as store:
        for number in range(100):
            append(store, commit(number % 50, number))
        compact(store)
        assert len(read(store)) == 51
    with open_store(tmp_path) as store:
        assert [offset for offset, _ in read(store)] == list(range(49, 100))


def test_portions_are_small(tmp_path: Path) -> None:
    """One call does about as much as its budget says, and requests can be served between the calls."""
    with open_store(tmp_path, segment_bytes=5_000) as store:
        for number in range(500):
            append(store, commit(0, number))
        calls = 0
        while store.compact_some(0, 10):
            calls += 1
            assert append(store, commit(1, calls)) == 499 + calls
        assert calls > 100
        offsets = [
            record.offset
            for _, record in read(store)
            if isinstance(record, OffsetCommitRecord) and not record.partition
        ]
        assert offsets == sorted(offsets)
        assert offsets[-1] == 499


def test_what_later_records_replace_goes_only_when_those_are_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is replaced, all segments from the first dirty one on are fsynced, the last one too."""
    done: list[str] = []
    sync, finish = compactable_logs.sync_path, compactable_logs.finish_swap
    monkeypatch.setattr(compactable_logs, "sync_path", lambda path: (done.append(path.name), sync(path)))
    monkeypatch.setattr(
        compactable_logs, "finish_swap", lambda *arguments: (done.append("replaced"), finish(*arguments))
    )
    with open_store(tmp_path) as store:
        for number in range(4):
            append(store, commit(0, number))
        compact(store)
    assert {log_file(tmp_path, base).name for base in range(4)} <= set(done[: done.index("replaced")])


def test_readers_hold_the_swap_up(tmp_path: Path) -> None:
    """No file is replaced under a reader; when it is done, or given up, compaction goes on."""
    with open_store(tmp_path) as store:
        for number in range(20):
            append(store, commit(0, number))
        reader = store.read(3)
        next(reader)
        for _ in range(200):
            assert store.compact_some(0)
        assert [record.offset for record in reader] == list(range(1, 20))
        compact(store)
        assert len(read(store)) == 2


# ---------------------------------------------------------------- failures


def test_an_unfinished_swap_of_a_broker_is_finished(tmp_path: Path) -> None:
    """``.cleaned`` files are dropped; a ``.swap`` file replaces the segments that lie in it, and their indexes go."""
    folder = tmp_path / "__consumer_offsets-3"
    folder.mkdir()
    for base, value in ((0, b"a"), (10, b"b"), (20, b"c")):
        log_file(tmp_path, base).write_bytes(encode_batch(base, [(b"\xff\xff", value, 5)]))
        log_file(tmp_path, base).with_suffix(".index").write_bytes(b"old")
    swap = folder / (log_file(tmp_path).name + ".swap")
    swap.write_bytes(encode_batch(10, [(b"\xff\xff", b"b", 5)]))
    swap.with_name("00000000000000000000.index.swap").write_bytes(b"new")
    (folder / "00000000000000000020.log.cleaned").write_bytes(b"half of a ba")

    with SegmentLogStore(tmp_path) as store:
        assert [offset for offset, _ in read(store)] == [10, 20]
    assert sorted(folder.glob("*.log*")) == [log_file(tmp_path), log_file(tmp_path, 20)]
    assert [path.read_bytes() for path in folder.glob("*.index*")] == [b""]  # made anew for the last one


def test_a_broken_swap_file_is_refused(tmp_path: Path) -> None:
    """It may hold the only copy of records: nothing is changed."""
    folder = tmp_path / "__consumer_offsets-3"
    folder.mkdir()
    swap = folder / (log_file(tmp_path).name + ".swap")
    swap.write_bytes(encode_batch(10, [(b"\xff\xff", b"b", 5)])[:-1])
    with SegmentLogStore(tmp_path) as store, pytest.raises(CorruptLogError, match="swap"):
        store.read(3)
    assert swap.exists()


def test_what_an_abandoned_store_has_begun_is_not_deleted_later(tmp_path: Path) -> None:
    """When a store is abandoned in the middle of a pass, the next one's pass over the same segments is its own."""

    def begin() -> SegmentLogStore:
        store = open_store(tmp_path)
        for number in range(3):
            append(store, commit(0, number))
        while not list(tmp_path.rglob("*.cleaned")):
            assert store.compact_some(0, 1)
        return store

    store = begin()
    store.abandon()
    with begin() as next_store:
        del store
        gc.collect()
        assert len(list(tmp_path.rglob("*.cleaned"))) == 1
        compact(next_store)
        assert [record for _, record in read(next_store)] == [commit(0, 1), commit(0, 2)]


def test_a_swap_that_fails_half_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The partition has to be opened anew; nothing is lost."""

    def fail(folder: Path, group: list[int]) -> None:
        raise OSError("Input/output error")

    with open_store(tmp_path) as store:
        for offset in (0, 9):
            append(store, commit(0, offset))
            append(store, commit(1, offset))
        monkeypatch.setattr(compactable_logs, "finish_swap", fail)
        with pytest.raises(StorageError, match="interrupted"):
            compact(store)
        monkeypatch.undo()
        assert [record for _, record in read(store)][-2:] == [commit(0, 9), commit(1, 9)]


def test_a_corrupt_segment_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Compaction of that partition stops with an error in the log, and appends go on."""
    with open_store(tmp_path) as store:
        for number in range(5):
            append(store, commit(0, number))
        broken = bytearray(log_file(tmp_path, 1).read_bytes())
        broken[-1] ^= 1
        log_file(tmp_path, 1).write_bytes(broken)
        compact(store)
        assert "__consumer_offsets-3 can't be compacted" in caplog.text
        assert append(store, commit(0, 5)) == 5
    assert log_file(tmp_path, 1).read_bytes() == broken
    assert not list((tmp_path / "__consumer_offsets-3").glob("*.cleaned"))


def test_a_wrong_base_offset_replaces_no_later_record(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An old commit whose offset reads as a late one, in bytes that no CRC covers, is not taken for the last one."""
    with open_store(tmp_path) as store:
        for number in range(5):
            append(store, commit(0, number))
        whole = log_file(tmp_path, 1).read_bytes()
        log_file(tmp_path, 1).write_bytes((1_000).to_bytes(8, "big") + whole[8:])
        compact(store)
        assert "__consumer_offsets-3 can't be compacted" in caplog.text
        log_file(tmp_path, 1).write_bytes(whole)
        assert [record for _, record in read(store)] == [commit(0, number) for number in range(5)]


class SmallFile(io.BytesIO):
    """A file on a disk that has room for 100 bytes."""

    def write(self, data: Buffer) -> int:
        if self.tell() + len(memoryview(data)) > 100:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)


def test_a_full_disk_leaves_the_old_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without room for the new segment nothing changes, appends go on, and the next try comes after a while."""
    with open_store(tmp_path) as store:
        for number in range(5):
            append(store, commit(number, number), commit(9, number))
        before = {path: path.read_bytes() for path in tmp_path.rglob("*.log")}
        monkeypatch.setattr(compactable_logs, "open", lambda path, mode: SmallFile(path.touch() or b""), raising=False)
        compact(store)
        assert "__consumer_offsets-3 can't be compacted: [Errno 28] No space left on device" in caplog.text
        assert {path: path.read_bytes() for path in tmp_path.rglob("*.log*")} == before
        assert append(store, commit(5, 5)) == 10
        monkeypatch.undo()

        compact(store, RETRY_MS - 1)
        assert [offset for offset, _ in read(store)] == list(range(11))
        compact(store, RETRY_MS)
        assert [offset for offset, _ in read(store)] == [0, 2, 4, 6, 8, 9, 10]


# ---------------------------------------------------------------- in a host


@pytest.mark.ci
def test_the_host_compacts_in_the_background(tmp_path: Path) -> None:
    """A running server compacts without being asked, and pauses when there is nothing left to do."""
    store = open_store(tmp_path)
    for number in range(300):
        append(store, commit(0, number), partition=0)
    config = Config(offsets_topic_num_partitions=1, log_cleaner_backoff_ms=10)

    async def run() -> None:
        async with Server(make_broker(config=config, clock=SystemClock(), log_store=store), port=0):
            for _ in range(500):
                await asyncio.sleep(0.02)
                if len(list((tmp_path / "__consumer_offsets-0").glob("*.log"))) == 2:
                    return
            raise AssertionError("nothing was compacted")

    asyncio.run(run())
    with open_store(tmp_path) as again:
        assert [offset for offset, _ in read(again, 0)] == [298, 299]
