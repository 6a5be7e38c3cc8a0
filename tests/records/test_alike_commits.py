"""Batches whose records differ in little are read as columns, and only those."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupcoord.records.alike_commits import RECORDS_MAX, read_alike
from groupcoord.records.batches import Batch, encode_batch, iter_batches
from groupcoord.testing.logs import GeneratedLog, logs

Pair = tuple[bytes, bytes | None]


def commit(partition: int, offset: int, *, names: bytes = b"\0\1\0\1g\0\1t", tail: bytes = bytes(10)) -> Pair:
    return names + pack(">i", partition), b"\0\4" + pack(">qi", offset, 5) + tail


def one(records: list[Pair], **fields: int) -> Batch:
    data = encode_batch(7, [(key, value, 1_000) for key, value in records], **fields)
    (batch,) = iter_batches(data)
    return batch


def check(batch: Batch) -> bool:
    """Compare with what the batch says record by record; tell whether it was read."""
    found = read_alike(batch)
    if found is None:
        return False
    expected = [
        (
            batch.base_offset + place,
            found.key[:-4] + pack(">i", partition),
            found.value[:2] + columns + found.value[14:],
        )
        for place, (partition, columns) in enumerate(
            zip(found.partitions, map(pack_columns, found.offsets, found.leader_epochs), strict=True)
        )
    ]
    assert [(offset, key, value) for offset, _, key, value in batch.records()] == expected
    return True


def pack_columns(offset: int, leader_epoch: int) -> bytes:
    return pack(">qi", offset, leader_epoch)


@pytest.mark.parametrize("count", [1, 2, 10, RECORDS_MAX])
@pytest.mark.parametrize("tail", [bytes(10), bytes(28)])
@pytest.mark.parametrize("names", [b"\0\1\0\1g\0\1t", b"\0\1\0\1g\0\xf0" + b"t" * 240])
def test_commits_of_one_topic_are_read(count: int, tail: bytes, names: bytes) -> None:
    """However many they are, and whether lengths take one byte or two."""
    assert check(one([commit(p, 1_000 * p, names=names, tail=tail) for p in range(count)]))


@pytest.mark.parametrize(
    "records",
    [
        [commit(0, 1), commit(1, 1, tail=b"x" * 10)],
        [commit(0, 1), commit(1, 1, names=b"\0\1\0\1h\0\1t")],
        [commit(0, 1), commit(1, 1, tail=bytes(11))],
        [commit(0, 1), (commit(1, 1)[0], None)],
        [(commit(0, 1)[0], b"short")],
        [commit(p, 1) for p in range(RECORDS_MAX + 1)],
    ],
    ids=["tail", "names", "size", "tombstone", "short", "many"],
)
def test_others_are_not(records: list[Pair]) -> None:
    """A batch of anything else is left to be read record by record."""
    assert read_alike(one(records)) is None


def test_a_transaction_is_not() -> None:
    """What becomes of a transaction's commits is decided by its marker."""
    assert read_alike(one([commit(0, 1)], producer_id=7, producer_epoch=0, is_transactional=True)) is None


@given(logs())
def test_what_is_read_is_right(log: GeneratedLog) -> None:
    """Whatever a batch holds, what is read of it is what it says record by record."""
    for batch in iter_batches(log.data):
        check(batch)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 90)), min_size=1, max_size=4))
def test_nearly_alike_commits(parts: list[tuple[int, int, int]]) -> None:
    """Records that nearly look alike are not mixed up."""
    records = [
        commit(where, size, names=b"\0\1\0\1g\0\1" + b"tu"[kind : kind + 1], tail=bytes(10 + size % 2))
        for kind, where, size in parts
    ]
    assert check(one(records)) == (len({(key[:-4], len(value or b"")) for key, value in records}) == 1)


@given(st.data())
def test_hostile_records_are_refused_quietly(draw: st.DataObject) -> None:
    """Bytes that are no records make nothing but None, or what the batch says."""
    data = bytearray(encode_batch(7, [(*commit(p, p), 1_000) for p in range(3)]))
    for _ in range(draw.draw(st.integers(1, 3))):
        data[draw.draw(st.integers(61, len(data) - 1))] = draw.draw(st.integers(0, 255))
    (batch,) = iter_batches(bytes(data), check_crc=False)
    try:
        list(batch.records())
    except ValueError:
        read_alike(batch)
    else:
        check(batch)
