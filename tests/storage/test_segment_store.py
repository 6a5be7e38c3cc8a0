"""The log store on disk: what is written is read back, failing writes leave no trace, and only one process writes."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from groupcoord.core.log.records import (
    GroupTombstone,
    OffsetCommitRecord,
    OpaqueRecord,
)
from groupcoord.errors import StoreContractError
from groupcoord.log_store import (
    ClosableStore,
    CompactingStore,
    CondensingStore,
    FailingStore,
    FlushingStore,
    IdentifiedStore,
    ListingStore,
    MemoryLogStore,
    RecordTooLargeError,
    StorageError,
    Ticket,
)
from groupcoord.records.batches import encode_batch, iter_batches
from groupcoord.storage.errors import LogDirectoryError
from groupcoord.storage.stores.segments import SegmentLogStore
from tests.storage.storage_logs import TOPIC_ID, append, commit, log_file, read

TICKET = Ticket(3, 1)


def test_bytes_of_records_are_kept(tmp_path: Path) -> None:
    """Key and value bytes are those in the file, even where encoding the record would give others (a legacy key)."""
    key, value = (
        bytes.fromhex("0000 0002 6731 0002 7431 00000003"),
        bytes.fromhex("0000 0000000000000064 0000 00000000000003e8"),
    )
    path = log_file(tmp_path)
    path.parent.mkdir()
    path.write_bytes(encode_batch(0, [(key, value, 5), (None, b"v", 5)]))

    with SegmentLogStore(tmp_path) as store:
        first, second = store.read(3)
    assert isinstance(first.record, OffsetCommitRecord)
    assert (first.key, first.value) == (key, value)
    assert second.record == OpaqueRecord(b"", b"v")


def test_layout_of_a_new_directory(tmp_path: Path) -> None:
    """Folders and files are named and filled as Kafka does."""
    directory = tmp_path / "new" / "data"
    with SegmentLogStore(directory, leader_epoch=4, topic_id=TOPIC_ID) as store:
        append(store, commit(0))
        assert store.topic_id == TOPIC_ID

    folder = directory / "__consumer_offsets-3"
    assert sorted(os.listdir(directory)) == [".lock", "__consumer_offsets-3"]
    assert sorted(os.listdir(folder)) == [
        *("00000000000000000000.index", "00000000000000000000.log", "00000000000000000000.timeindex"),
        *("00000000000000000001.snapshot", "leader-epoch-checkpoint", "partition.metadata"),
    ]
    assert (folder / "partition.metadata").read_text() == "version: 0\ntopic_id: nopMvLbmQSeWRRdDOv_Xwg"
    assert (folder / "leader-epoch-checkpoint").read_text() == "0\n1\n4 0\n"
    (batch,) = iter_batches(log_file(directory).read_bytes())
    assert batch.leader_epoch == 4


def test_topic_id_and_leader_epochs_carry_on(tmp_path: Path) -> None:
    """A directory keeps its topic id; a new leader epoch is noted with its first offset, and epochs never go back."""
    with SegmentLogStore(tmp_path) as store:
        append(store, commit(0), commit(1))
        topic_id = store.topic_id
    with SegmentLogStore(tmp_path, leader_epoch=5) as store:
        append(store, commit(2))
        append(store, commit(0), partition=4)
        assert store.topic_id == topic_id
    with SegmentLogStore(tmp_path, leader_epoch=2) as store:
        append(store, commit(3))

    assert (tmp_path / "__consumer_offsets-3" / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n5 2\n"
    metadata = [(tmp_path / f"__consumer_offsets-{n}" / "partition.metadata").read_text() for n in (3, 4)]
    assert metadata[0] == metadata[1]
    assert [b.leader_epoch for b in iter_batches(log_file(tmp_path).read_bytes())] == [0, 5, 5]


@pytest.mark.parametrize("text", ["", "0", "1\n1\n0 0\n", "0\n1\nx y\n", "0\n1\n0\n"])
def test_broken_leader_epochs_are_found_again(tmp_path: Path, text: str) -> None:
    """A checkpoint that Kafka would not have written is rebuilt from the batches."""
    with SegmentLogStore(tmp_path) as store:
        append(store, commit(0))
    (tmp_path / "__consumer_offsets-3" / "leader-epoch-checkpoint").write_text(text)

    with SegmentLogStore(tmp_path) as store:
        assert read(store) == [(0, commit(0))]
        append(store, commit(1))
    assert (tmp_path / "__consumer_offsets-3" / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"


def test_reading_creates_nothing(tmp_path: Path) -> None:
    """A partition never written is empty, starts at offset 0 and leaves no folder."""
    with SegmentLogStore(tmp_path) as store:
        assert read(store, 7) == []
        assert store.end_offset(7) == 0
        assert store.partitions() == []
        append(store, commit(0), partition=12)
        append(store, commit(0), partition=2)
        assert store.partitions() == [2, 12]


def test_reading_while_appending(tmp_path: Path) -> None:
    """A reader sees the records of the time of its call, though the log grows meanwhile."""
    with SegmentLogStore(tmp_path, segment_bytes=300) as store:
        append(store, commit(0))
        reader = store.read(3)
        for offset in range(1, 9):
            append(store, commit(offset))
        assert [record.offset for record in reader] == [0]
        assert len(read(store)) == 9


def test_segments_roll(tmp_path: Path) -> None:
    """A segment never grows beyond its limit; the next one is named after its first offset; all are read in order."""
    with SegmentLogStore(tmp_path, segment_bytes=400) as store:
        for offset in range(0, 20, 2):
            assert append(store, commit(offset), commit(offset + 1)) == offset
        assert [offset for offset, _ in read(store)] == list(range(20))

    files = sorted((tmp_path / "__consumer_offsets-3").glob("*.log"))
    assert len(files) > 3
    for path in files:
        batches = list(iter_batches(path.read_bytes()))
        assert path.stem == f"{batches[0].base_offset:020d}"
        assert path.stat().st_size <= 400
    with SegmentLogStore(tmp_path, segment_bytes=400) as store:
        assert append(store, commit(20)) == 20
        assert [record for _, record in read(store)] == [commit(offset) for offset in range(21)]


def test_gaps_and_empty_segments_of_compaction(tmp_path: Path) -> None:
    """Empty segments and gaps between offsets, which a broker's compaction leaves, are fine, at the end too."""
    folder = tmp_path / "__consumer_offsets-3"
    folder.mkdir()
    (folder / "00000000000000000000.log").write_bytes(encode_batch(1, [(b"\xff\xff", b"a", 5)]))
    (folder / "00000000000000000100.log").write_bytes(b"")
    (folder / "00000000000000000200.log").write_bytes(encode_batch(250, [(b"\xff\xff", b"b", 5)]))
    (folder / "00000000000000000300.log").write_bytes(b"")
    (folder / "00000000000000000300.index").write_bytes(b"")

    with SegmentLogStore(tmp_path) as store:
        assert [offset for offset, _ in read(store)] == [1, 250]
        assert append(store, commit(0)) == 300
        assert [offset for offset, _ in read(store)] == [1, 250, 300]


# ---------------------------------------------------------------- failing appends


def test_too_large_appends(tmp_path: Path) -> None:
    """A batch over the limit, or a string that no record can hold, is refused and nothing is written."""
    with SegmentLogStore(tmp_path, batch_bytes_max=500) as store:
        append(store, commit(0))
        size = log_file(tmp_path).stat().st_size
        for records in ([commit(n) for n in range(10)], [GroupTombstone("g" * 40_000)], [commit(2**63)]):
            with pytest.raises(RecordTooLargeError):
                append(store, *records)
        assert log_file(tmp_path).stat().st_size == size
        assert append(store, commit(1)) == 1


def test_short_write_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that stops half way raises StorageError and leaves no trace; its offset goes to the next append."""
    with SegmentLogStore(tmp_path) as store:
        append(store, commit(0))
        before = log_file(tmp_path).read_bytes()
        write = os.write
        monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:50]))
        with pytest.raises(StorageError, match="only 50 of") as raised:
            append(store, commit(1))
        monkeypatch.undo()
        assert not raised.value.outcome_unknown
        assert log_file(tmp_path).read_bytes() == before
        assert append(store, commit(2)) == 1
        assert [record for _, record in read(store)] == [commit(0), commit(2)]


def test_a_new_partition_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed creation leaves no partial file, and succeeds once there is space."""

    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with SegmentLogStore(tmp_path) as store:
        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(StorageError, match="No space left on device"):
            append(store, commit(0))
        monkeypatch.undo()
        assert list((tmp_path / "__consumer_offsets-3").iterdir()) == []
        assert append(store, commit(0)) == 0


def test_contract_of_calls(tmp_path: Path) -> None:
    """No records, no such partition and a closed store are mistakes of the caller; closing twice is none."""
    store = SegmentLogStore(tmp_path)
    with pytest.raises(StoreContractError, match="at least one record"):
        store.append(3, TICKET, [])
    with pytest.raises(StoreContractError, match="no log partition -1"):
        store.read(-1)
    append(store, commit(0))
    store.close()
    store.close()
    for call in (lambda: store.read(3), lambda: append(store, commit(1)), lambda: store.end_offset(3)):
        with pytest.raises(StoreContractError, match="closed"):
            call()


@pytest.mark.parametrize(
    "arguments",
    [
        {"segment_bytes": 0},
        {"flush_interval_messages": 0},
        {"batch_bytes_max": 0},
        {"flush_interval_ms": -1},
        {"leader_epoch": -1},
    ],
)
def test_arguments_are_checked(tmp_path: Path, arguments: dict[str, int]) -> None:
    """Numbers out of range are refused before anything is touched."""
    with pytest.raises(ValueError, match=r"must be|negative"):
        SegmentLogStore(tmp_path / "data", **arguments)  # type: ignore[arg-type]
    assert not (tmp_path / "data").exists()


# ---------------------------------------------------------------- fsync


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The .log files that were fsynced, in order."""
    names: list[str] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        name = os.readlink(f"/proc/self/fd/{descriptor}").rsplit("/", 1)[-1]
        if name.endswith(".log"):
            names.append(name[-7:])
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    return names


def test_only_flush_and_close_flush_by_default(tmp_path: Path, synced: list[str]) -> None:
    """Kafka's default leaves flushing to the operating system; a clean close makes everything durable."""
    store = SegmentLogStore(tmp_path, segment_bytes=200)
    for offset in range(3):
        append(store, commit(offset))
    assert store.flush_due(10**15) is None
    assert synced == []
    store.flush()
    assert synced == ["002.log"]
    append(store, commit(3))
    store.close()
    assert synced == ["002.log", "003.log"]


def test_flush_by_time(tmp_path: Path, synced: list[str]) -> None:
    """flush_due() fsyncs what is old enough and returns when the next one is due, per partition."""
    with SegmentLogStore(tmp_path, flush_interval_ms=100) as store:
        assert store.flush_due(0) is None
        append(store, commit(0), timestamp_ms=1000)
        append(store, commit(1), timestamp_ms=1050)
        append(store, commit(0), partition=4, timestamp_ms=1060)
        assert store.flush_due(1099) == 1100
        assert synced == []
        assert store.flush_due(1100) == 1160
        assert len(synced) == 1
        assert store.flush_due(1160) is None
        assert len(synced) == 2
        assert store.flush_due(5000) is None
        assert len(synced) == 2


def test_old_segment_is_flushed_when_rolling(tmp_path: Path, synced: list[str]) -> None:
    """With a flush policy, records never stay unflushed in a segment that was left."""
    with SegmentLogStore(tmp_path, segment_bytes=200, flush_interval_messages=100) as store:
        for offset in range(3):
            append(store, commit(offset))
        assert synced == ["000.log", "001.log"]


# ---------------------------------------------------------------- the directory


def test_useless_directories(tmp_path: Path) -> None:
    """A file in place of the directory, or a place where nothing can be made, gives an error naming the path."""
    file = tmp_path / "file"
    file.write_text("")
    for path, reason in (
        (file, "not a directory"),
        (file / "below", "Not a directory"),
        (Path("/proc/nowhere"), "No such file"),
    ):
        with pytest.raises(LogDirectoryError, match=reason) as raised:
            SegmentLogStore(path)
        assert raised.value.path == path


def test_what_a_store_offers_is_said_by_its_type(tmp_path: Path) -> None:
    """The store on disk offers everything; one in memory has nothing to flush, compact, name or close."""
    offers = (
        CondensingStore,
        FlushingStore,
        CompactingStore,
        ListingStore,
        IdentifiedStore,
        ClosableStore,
        FailingStore,
    )
    with SegmentLogStore(tmp_path) as store:
        assert [offer.__name__ for offer in offers if not isinstance(store, offer)] == []
    assert [offer.__name__ for offer in offers if isinstance(MemoryLogStore(), offer)] == []
