"""Committed offsets are found in a batch without decoding them, and nothing else is taken for one."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupcoord.core.records import OffsetCommitRecord, Record
from groupcoord.records import plain_commits
from groupcoord.records.batches import Batch, encode_batch, iter_batches
from groupcoord.records.codec import decode_control, decode_record, encode_record
from groupcoord.records.plain_commits import LatestCommits, decode_plain_commit, read_plain_commits
from groupcoord.storage.compacted_batches import placeholder, rewrite_batch
from groupcoord.testing.logs import GeneratedLog, logs

Pair = tuple[bytes, bytes | None]
TOPIC_ID = UUID("9e8a4cbc-b6e6-4127-9645-17433affd7c2")


def commit(
    partition: int,
    offset: int = 1,
    *,
    group_id: str = "g",
    topic: str = "t",
    topic_id: UUID = TOPIC_ID,
    version: int | None = None,
    metadata: str = "",
) -> Pair:
    record = OffsetCommitRecord(group_id, topic, partition, offset, 5, metadata, 77, topic_id=topic_id)
    record.value_version = version
    return encode_record(record)


def one(records: Iterable[Pair], *, timestamps_ms: Iterable[int] | None = None, **fields: int) -> Batch:
    pairs = list(records)
    times = [1_000] * len(pairs) if timestamps_ms is None else timestamps_ms
    data = encode_batch(7, [(*pair, time_ms) for pair, time_ms in zip(pairs, times, strict=True)], **fields)
    (batch,) = iter_batches(data)
    return batch


def found_in(batch: Batch) -> dict[int, tuple[int, Record]] | None:
    """Return the timestamp and the record at each log offset, None if the batch is left to others."""
    latest: LatestCommits = {}
    if not read_plain_commits(batch, latest):
        return None
    return {
        entry[0]: (entry[4].timestamp_ms, decode_plain_commit(names, entry))
        for names, of_names in latest.items()
        for entry in of_names.values()
    }


def last_of_each_key(batch: Batch) -> dict[int, tuple[int, Record]]:
    """Return the same, as the codec has it."""
    decode = decode_control if batch.is_control else decode_record
    last = {
        key: (offset, (timestamp_ms, decode(key or b"", value, batch.producer_id, batch.producer_epoch)))
        for offset, timestamp_ms, key, value in batch.records()
    }
    return dict(last.values())


def check(batch: Batch) -> bool:
    """Compare with the codec; tell whether the batch was read."""
    found = found_in(batch)
    assert found is None or found == last_of_each_key(batch)
    return found is not None


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 200])
@pytest.mark.parametrize(
    ("topic_id", "version"),
    [(TOPIC_ID, None), (UUID(int=0), None), (UUID(int=0), 3)],
    ids=["v4", "v4 without topic id", "v3"],
)
@pytest.mark.parametrize("name", ["t", "t" * 20, "t" * 55, "t" * 56, "t" * 57, "t" * 240])
def test_commits_are_read(count: int, topic_id: UUID, version: int | None, name: str) -> None:
    """However many they are, in each version that they have, whether lengths take one byte or two."""
    pairs = [commit(p, 1_000 * p, topic=name, topic_id=topic_id, version=version) for p in range(count)]
    assert check(one(pairs))


def test_commits_of_many_groups_are_read() -> None:
    """A broker puts what it is asked at about the same time into one batch; some of it is a little later."""
    pairs = [commit(number % 3, number, group_id="g" * (number % 40), topic=f"t{number % 7}") for number in range(300)]
    assert check(one(pairs, timestamps_ms=[1_000 + number // 5 for number in range(300)]))


def test_of_each_key_the_last_one_stays() -> None:
    """An earlier commit of the batch, or of one before it, is replaced."""
    latest: LatestCommits = {}
    for batch in (one([commit(0, 1), commit(1, 2)]), one([commit(0, 3), commit(0, 4)])):
        assert read_plain_commits(batch, latest)
    assert [[entry[2] for entry in of_names.values()] for of_names in latest.values()] == [[4, 2]]


@pytest.mark.parametrize("new_horizon_ms", [None, 900])
def test_compaction_leaves_gaps(new_horizon_ms: int | None) -> None:
    """Records keep their offsets and times in a batch from which others are gone."""
    whole = one([commit(p, p) for p in range(100)], timestamps_ms=[1_000 + p // 50 for p in range(100)])
    kept = [record for record in whole.records() if record[0] % 3]
    (batch,) = iter_batches(rewrite_batch(whole, kept, new_horizon_ms))
    assert batch.record_count < whole.record_count
    assert check(batch) == (new_horizon_ms is None)


def test_nothing_is_found_in_an_empty_batch() -> None:
    """Compaction leaves a batch without records where the last one was."""
    (batch,) = iter_batches(placeholder(one([commit(0)])))
    assert found_in(batch) == {}


@pytest.mark.parametrize(
    "other",
    [
        (commit(1)[0], None),
        (commit(1)[0], b"short"),
        (commit(1)[0], bytes(42)),
        commit(1, metadata="m"),
        commit(1, topic_id=UUID(int=0), version=1),
        (b"\0\2" + commit(1)[0][2:], commit(1)[1]),
        (commit(1)[0].replace(b"\0\1g", b"\0\2g"), commit(1)[1]),
        (commit(1)[0].replace(b"g", b"\xff"), commit(1)[1]),
        (commit(1)[0], (commit(1)[1] or b"")[:-16] + bytes(16)),
        (b"\0\x63", b"x" * 60),
    ],
    ids=["tombstone", "short", "zeros", "metadata", "v1", "key", "length", "text", "zero topic id", "unknown"],
)
@pytest.mark.parametrize("place", [0, 1, 70])
def test_others_are_not(other: Pair, place: int) -> None:
    """A batch that holds anything else is left to be read record by record."""
    pairs = [commit(p) for p in range(place)]
    assert found_in(one([*pairs, other, commit(99)])) is None


def test_a_transaction_is_not() -> None:
    """What becomes of a transaction's commits is decided by its marker."""
    assert found_in(one([commit(0)], producer_id=7, producer_epoch=0, is_transactional=True)) is None


def test_memory_for_layouts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of many lengths are read all the same."""
    monkeypatch.setattr(plain_commits, "LAYOUTS_MAX", 3)
    assert check(one([commit(0, topic="t" * length) for length in range(40, 60)]))


@given(logs())
def test_what_is_read_is_right(log: GeneratedLog) -> None:
    """Whatever a batch holds, what is read of it is what the codec makes of it."""
    for batch in iter_batches(log.data):
        check(batch)


@given(st.data())
def test_hostile_records_are_refused_quietly(draw: st.DataObject) -> None:
    """Bytes that are no records are left alone, or read as the codec reads them."""
    data = bytearray(encode_batch(7, [(*commit(p, p), 1_000) for p in range(3)]))
    for _ in range(draw.draw(st.integers(1, 3))):
        data[draw.draw(st.integers(61, len(data) - 1))] = draw.draw(st.integers(0, 255))
    (batch,) = iter_batches(bytes(data), check_crc=False)
    try:
        list(batch.records())
    except ValueError:
        assert found_in(batch) is None
    else:
        check(batch)
