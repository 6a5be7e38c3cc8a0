"""Compaction of ``__consumer_offsets``: readers, durability, interrupted swaps, the host.

The rules of a pass are tested in ``tests/topic_logs/test_compaction.py``.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from groupcoord import Config, SystemClock
from groupcoord.broker.broker import make_broker
from groupcoord.core.log.records import OffsetCommitRecord
from groupcoord.host.server import Server
from groupcoord.log_store import StorageError
from groupcoord.records.batches import encode_batch
from groupcoord.storage.compaction import compactable_logs
from groupcoord.storage.errors import CorruptLogError
from groupcoord.storage.stores.segments import CompactionSettings, SegmentLogStore
from tests.storage.storage_logs import RollingStore, append, log_file, read


def commit(partition: int, offset: int) -> OffsetCommitRecord:
    return OffsetCommitRecord("g", "t", partition, offset)


def open_store(directory: Path) -> SegmentLogStore:
    compaction = CompactionSettings(min_cleanable_ratio=0.0)
    return RollingStore(directory, roll_bytes=1, segment_bytes=10**6, compaction=compaction)


def compact(store: SegmentLogStore, now_ms: int = 0) -> None:
    while store.compact_some(now_ms):
        pass


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
    """No file is replaced under a reader; when it is done or closed, compaction continues."""
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


def test_a_swap_that_fails_half_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The partition has to be opened again; nothing is lost."""

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


# ---------------------------------------------------------------- in a host


@pytest.mark.ci
def test_the_host_compacts_in_the_background(tmp_path: Path) -> None:
    """A running server compacts by itself, and pauses when nothing is left."""
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
