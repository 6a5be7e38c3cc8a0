"""Logs after a crash: torn tails are truncated with a warning, corruption is refused and left unchanged. Reading in
chunks.
"""

from __future__ import annotations

import contextlib
import logging
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c

from groupcoord.core.log.records import OpaqueRecord, Record
from groupcoord.errors import ErrorCode
from groupcoord.log_store import LogRecord
from groupcoord.records.batches import CorruptBatchError, TruncatedBatchError, encode_batch
from groupcoord.storage.errors import CorruptLogError
from groupcoord.storage.log.segment_files import read_batches, read_records
from groupcoord.storage.stores.segments import SegmentLogStore
from tests.storage.storage_logs import append, commit, log_file, read as read_all, three_batches


def load(store: SegmentLogStore) -> list[tuple[int, Record]]:
    """Read as a coordinator that loads the log does; commits with metadata that aren't ASCII come one by one."""
    records = []
    for record in store.read_last(3):
        assert isinstance(record, LogRecord)
        records.append((record.offset, record.record))
    return records


Read = Callable[[SegmentLogStore], list[tuple[int, Record]]]

both_ways = pytest.mark.parametrize("read", [read_all, load], ids=["read", "load"])


@both_ways
def test_torn_tail_is_cut_wherever_it_tears(tmp_path: Path, read: Read, caplog: pytest.LogCaptureFixture) -> None:
    """Every proper prefix of the last batch is truncated, with one warning about what and where; appends continue
    there.
    """
    *_, (start, end) = three_batches(tmp_path)
    whole = log_file(tmp_path).read_bytes()
    for cut in range(start + 1, end):
        caplog.clear()
        log_file(tmp_path).write_bytes(whole[:cut])
        with SegmentLogStore(tmp_path) as store, caplog.at_level(logging.WARNING):
            assert [offset for offset, _ in read(store)] == [0, 1, 2, 3]
            assert log_file(tmp_path).stat().st_size == start
            (warning,) = caplog.records
            for fact in (str(log_file(tmp_path)), f"cut {cut - start} bytes", f"position {start}"):
                assert fact in warning.getMessage()
            assert append(store, commit(4), commit(5)) == 4
            assert [record for _, record in read(store)] == [commit(offset) for offset in range(6)]
        assert log_file(tmp_path).read_bytes() == whole


@both_ways
@pytest.mark.parametrize("tail", ["flipped", "zeros", "garbage"])
def test_broken_last_batch_is_cut(tmp_path: Path, read: Read, caplog: pytest.LogCaptureFixture, tail: str) -> None:
    """A last batch with a wrong CRC, zeros or garbage behind the last batch are a torn tail too."""
    *_, (start, end) = three_batches(tmp_path)
    whole = log_file(tmp_path).read_bytes()
    broken, kept = {
        "flipped": (whole[: end - 1] + bytes((whole[end - 1] ^ 1,)), start),
        "zeros": (whole + bytes(4096), end),
        "garbage": (whole + bytes(range(256)) * 8, end),
    }[tail]
    log_file(tmp_path).write_bytes(broken)

    with SegmentLogStore(tmp_path) as store, caplog.at_level(logging.WARNING):
        assert len(read(store)) == (4 if kept == start else 6)
    assert log_file(tmp_path).read_bytes() == whole[:kept]
    assert len(caplog.records) == 1


@both_ways
def test_corrupt_middle_is_refused_at_every_byte(tmp_path: Path, read: Read) -> None:
    """A broken batch that others follow, whichever byte is hit, raises with file and position, and nothing is cut."""
    _, (start, end), _ = three_batches(tmp_path)
    whole = log_file(tmp_path).read_bytes()
    leader_epoch = range(start + 12, start + 16)  # the CRC doesn't cover it, and nobody misses it
    for position in (position for position in range(start, end) if position not in leader_epoch):
        broken = bytearray(whole)
        broken[position] ^= 0x11
        log_file(tmp_path).write_bytes(broken)
        # A larger base offset, which the CRC doesn't cover either, shows at the batch after it,
        # unless it is larger than any that the segment may have.
        broken_start = end if start + 4 <= position < start + 8 else start
        with SegmentLogStore(tmp_path) as store:
            with pytest.raises(CorruptLogError) as raised:
                read(store)
            assert (raised.value.path, raised.value.position) == (log_file(tmp_path), broken_start)
            assert f"{log_file(tmp_path)} is corrupt at position {broken_start}" in str(raised.value)
            assert raised.value.error_code is ErrorCode.KAFKA_STORAGE_ERROR
            with pytest.raises(CorruptLogError):
                append(store, commit(9))
        assert log_file(tmp_path).read_bytes() == broken


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("how", ["read", "read_last"])
def test_corrupt_older_segment_is_refused(tmp_path: Path, how: str, is_open: bool) -> None:
    """The end of a segment that another one follows is never cut: reading it raises, after the records before it."""
    with SegmentLogStore(tmp_path, segment_bytes=200) as store:
        for offset in range(3):
            append(store, commit(offset))
    first = log_file(tmp_path)
    broken = first.read_bytes()[:-1]
    first.write_bytes(broken)

    with SegmentLogStore(tmp_path) as store:
        if is_open:
            assert store.end_offset(3) == 3
        with pytest.raises(CorruptLogError, match="needs") as raised:
            list(getattr(store, how)(3))
        assert raised.value.path == first
    assert first.read_bytes() == broken


Use = Callable[[SegmentLogStore], object]

any_first_use = pytest.mark.parametrize(
    "first_use",
    [
        lambda store: None,
        lambda store: store.end_offset(3),
        lambda store: store.read(3),
        lambda store: append(store, commit(77)),
    ],
    ids=["nothing", "end_offset", "read", "append"],
)


@both_ways
@any_first_use
@pytest.mark.parametrize("excess", [1, 4, 2**14, 2**40])
def test_wrong_base_offset_in_an_older_segment_is_refused(
    tmp_path: Path, read: Read, first_use: Use, excess: int
) -> None:
    """An offset that belongs to later segments, in bytes that no CRC covers, drops nothing, however it was opened."""
    with SegmentLogStore(tmp_path, segment_bytes=400) as store:
        for offset in range(12):
            append(store, commit(offset))
    older = log_file(tmp_path)
    (*_, last) = read_batches(older)
    content = older.read_bytes()
    wrong = (last.base_offset + excess).to_bytes(8, "big")
    broken = content[: last.position] + wrong + content[last.position + 8 :]
    older.write_bytes(broken)

    with SegmentLogStore(tmp_path) as store:
        first_use(store)
        with pytest.raises(CorruptLogError, match=f"corrupt at position {last.position}: offset") as raised:
            read(store)
        assert raised.value.path == older
    assert older.read_bytes() == broken


@both_ways
@any_first_use
@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize("wrong", [2 + 2**31, 2**43, 2**63 - 1])
def test_base_offset_that_no_index_and_no_snapshot_can_hold_is_refused(
    tmp_path: Path, read: Read, first_use: Use, is_last: bool, wrong: int
) -> None:
    """An offset too far from the segment's own, or beyond all, is corrupt; closing the store is no trouble then."""
    first = encode_batch(0, [(b"k", b"v", 5), (b"l", b"w", 5)])
    path = log_file(tmp_path)
    path.parent.mkdir()
    records = [(b"k", b"v", 6), (b"k", b"w", 6)]
    path.write_bytes(first + encode_batch(wrong, records, producer_id=7, producer_epoch=0))
    content = path.read_bytes()
    if not is_last:
        log_file(tmp_path, 3).write_bytes(encode_batch(3, [(b"m", b"x", 7)]))

    with SegmentLogStore(tmp_path) as store:
        with contextlib.suppress(CorruptLogError):
            first_use(store)
        with pytest.raises(CorruptLogError, match=f"corrupt at position {len(first)}: offset {wrong + 1}") as raised:
            read(store)
        assert raised.value.path == path
    assert path.read_bytes() == content


@both_ways
def test_wrong_base_offset_behind_the_back_of_an_open_log_is_refused(tmp_path: Path, read: Read) -> None:
    """A bit that flips in the segment that is being written, under a running process, is noticed when it is read."""
    with SegmentLogStore(tmp_path) as store:
        for offset in range(4):
            append(store, commit(offset))
        (_, second, *_) = read_batches(log_file(tmp_path))
        broken = bytearray(log_file(tmp_path).read_bytes())
        broken[second.position + 3] ^= 1
        log_file(tmp_path).write_bytes(broken)
        with pytest.raises(CorruptLogError, match=f"position {second.position}"):
            read(store)


@both_ways
def test_offsets_of_the_next_segment_before_an_empty_one_are_refused(tmp_path: Path, read: Read) -> None:
    three_batches(tmp_path)
    log_file(tmp_path, 5).touch()

    with SegmentLogStore(tmp_path) as store, pytest.raises(CorruptLogError, match="stay below 5"):
        read(store)


@both_ways
@pytest.mark.parametrize(
    "content",
    [b"hello", b"version: 0\ntopic_id: abc", b"\x00" * 100 + b"x", b"\xff" * 100, bytes(16) + b"\x03" + bytes(50)],
    ids=["word", "text", "zeros and more", "ones", "unknown format"],
)
def test_a_file_that_was_never_a_segment_is_refused(tmp_path: Path, read: Read, content: bytes) -> None:
    """A file that does not begin as a batch of this segment is no torn tail: it stays unchanged, and is not read."""
    path = log_file(tmp_path, 7)
    path.parent.mkdir()
    path.write_bytes(content)

    with SegmentLogStore(tmp_path) as store, pytest.raises(CorruptLogError, match="does not begin as a segment"):
        read(store)
    assert path.read_bytes() == content


@both_ways
def test_a_first_batch_torn_anywhere_is_cut(tmp_path: Path, read: Read) -> None:
    """A segment torn in its first batch is empty after a crash, whether bytes or pages are missing."""
    _, (start, end), _ = three_batches(tmp_path)
    first = log_file(tmp_path).read_bytes()[:start]
    second = log_file(tmp_path).read_bytes()[start:end]
    log_file(tmp_path).write_bytes(first)
    rest = log_file(tmp_path, 2)
    torn = [second[:cut] for cut in range(1, len(second))] + [bytes(len(second)), second[:61] + bytes(len(second) - 61)]
    for content in torn:
        rest.write_bytes(content)
        with SegmentLogStore(tmp_path) as store:
            assert [offset for offset, _ in read(store)] == [0, 1]
            assert rest.stat().st_size == 0


@both_ways
def test_torn_tail_before_an_empty_segment_is_cut(tmp_path: Path, read: Read, caplog: pytest.LogCaptureFixture) -> None:
    """When power failed right after rolling, the torn batch ends the segment before the last, empty one."""
    with SegmentLogStore(tmp_path, segment_bytes=200) as store:
        for offset in range(3):
            append(store, commit(offset))
    last, before = log_file(tmp_path, 2), log_file(tmp_path, 1)
    last.write_bytes(last.read_bytes()[:30])
    before.write_bytes(before.read_bytes()[:-5])

    with SegmentLogStore(tmp_path) as store, caplog.at_level(logging.WARNING):
        assert [offset for offset, _ in read(store)] == [0]
        assert append(store, commit(7)) == 2
        assert [offset for offset, _ in read(store)] == [0, 2]
    assert len(caplog.records) == 2


@both_ways
@pytest.mark.parametrize("offset", [5, -(2**63)])
def test_offsets_that_go_back_are_corruption(tmp_path: Path, read: Read, offset: int) -> None:
    """An intact batch with an earlier offset is refused, and not truncated as a torn tail where it is the last."""
    path = log_file(tmp_path)
    path.parent.mkdir()
    whole = encode_batch(5, [(b"\xff\xff", b"a", 5)]) + encode_batch(offset, [(b"\xff\xff", b"b", 5)])
    path.write_bytes(whole)

    with SegmentLogStore(tmp_path) as store, pytest.raises(CorruptLogError, match=f"offset {offset} after 5"):
        read(store)
    assert path.read_bytes() == whole


def test_offsets_that_go_back_inside_a_batch_are_corruption(tmp_path: Path) -> None:
    path = log_file(tmp_path)
    path.parent.mkdir()
    batch = bytearray(encode_batch(5, [(b"\xff\xff", b"a", 5), (b"\xff\xff", b"b", 5)]))
    first = 61  # behind the batch's header; the length of a record is one byte here, its offset is three bytes on
    second = first + 1 + batch[first] // 2
    batch[first + 3], batch[second + 3] = batch[second + 3], batch[first + 3]
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    path.write_bytes(bytes(batch))

    with SegmentLogStore(tmp_path) as store, pytest.raises(CorruptLogError, match="the offsets of its records go back"):
        list(store.read(3))


def test_a_load_that_was_given_up_leaves_the_log_closed(tmp_path: Path) -> None:
    """An append after an abandoned read finds the end of the log."""
    three_batches(tmp_path)
    with SegmentLogStore(tmp_path) as store:
        records = store.read_last(3)
        assert next(records).offset == 0
        assert append(store, commit(6)) == 6
        del records
        assert [offset for offset, _ in load(store)] == list(range(7))


def test_older_message_formats_are_read(tmp_path: Path) -> None:
    """A log of a broker before 0.11 is read, and continues in the new format."""
    covered = bytes.fromhex("00 00 00000001 6b 00000001 76")
    message = bytes.fromhex("0000000000000005 00000010") + zlib.crc32(covered).to_bytes(4, "big") + covered
    path = log_file(tmp_path)
    path.parent.mkdir()
    path.write_bytes(message)

    with SegmentLogStore(tmp_path) as store:
        assert append(store, commit(0)) == 6
        assert read_all(store) == [(5, OpaqueRecord(b"k", b"v")), (6, commit(0))]


# ---------------------------------------------------------------- reading in chunks


def test_chunks_of_any_size_give_the_same_batches(tmp_path: Path) -> None:
    """Memory is bounded by the chunk; a batch larger than that is held whole, wherever the chunks end."""
    spans = three_batches(tmp_path)
    path = log_file(tmp_path)
    size = path.stat().st_size
    for chunk_bytes in range(1, size + 2):
        batches = list(read_batches(path, chunk_bytes=chunk_bytes))
        assert [(batch.position, batch.position + batch.size_bytes) for batch in batches] == spans
        assert [offset for batch in batches for offset, _, _, _ in batch.records()] == list(range(6))


def test_part_of_a_file(tmp_path: Path) -> None:
    """Reading stops at the given end, which must be that of a batch; offsets below a bound are an error."""
    (_, first_end), (_, second_end), _ = three_batches(tmp_path)
    path = log_file(tmp_path)

    assert [record.offset for record in read_records(path, end=second_end, chunk_bytes=50)] == [0, 1, 2, 3]
    for end in (1, first_end - 1, first_end + 1):
        with pytest.raises(TruncatedBatchError) as raised:
            list(read_batches(path, end=end, chunk_bytes=50))
        assert raised.value.position == (0 if end < first_end else first_end)
    with pytest.raises(CorruptBatchError, match="offset 0 after 4"):
        list(read_batches(path, base_offset=5))


def test_implausible_length_is_not_allocated(tmp_path: Path) -> None:
    """A length beyond the file's end is an error without an allocation."""
    path = tmp_path / "segment.log"
    whole = encode_batch(0, [(b"k", b"v", 5)])
    path.write_bytes(whole[:8] + (200_000_000).to_bytes(4, "big") + whole[12:])

    with pytest.raises(TruncatedBatchError, match="needs 200000012 bytes"):
        list(read_batches(path))
