"""Batches of commits and of tombstones are written as the usual way does it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from uuid import UUID

import pytest
from attrs import evolve
from hypothesis import given, strategies as st

from groupcoord.core.columns import offset_columns
from groupcoord.core.log.records import (
    CommitRecords,
    CommittedTopic,
    OffsetCommitRecord,
    Record,
    topic_of_record,
)
from groupcoord.records import commit_batch
from groupcoord.records.batches import Batch, emptied, encode_batch, iter_batches, raw_records, rewritten
from groupcoord.records.codec import RecordEncodingError, decode_control, decode_record, encode_record
from groupcoord.records.commit_batch import encode_commit_batch, read_commits
from groupcoord.testing.logs import GeneratedLog, logs
from tests.tables import as_one_test

Pair = tuple[bytes, bytes | None]
TIMESTAMP_MS = 1_700_000_000_000
TOPIC_ID = UUID("9e8a4cbc-b6e6-4127-9645-17433affd7c2")
PLAIN = OffsetCommitRecord("group", "topic", 3, 42, 7, "", TIMESTAMP_MS, topic_id=UUID(int=5))
METADATA = ["", "m", "größe", "x" * 40, "y" * 40, "z" * 126, "z" * 127, "z" * 300]

# ---------------------------------------------------------------- writing


def columns_of(records: Iterable[OffsetCommitRecord]) -> CommitRecords:
    """Return records as the columns of a commit: those of one kind that lie side by side together."""
    topics = []
    for kind, found in groupby(map(topic_of_record, records), lambda topic: topic.kind):
        rows = [columns for _, columns in found]
        joined = [[column[place][0] for column in rows] for place in range(3)]
        topics.append(CommittedTopic(kind, offset_columns(*joined, [columns.texts()[0] for columns in rows])))
    return CommitRecords(topics)


def usual_way(base_offset: int, records: list[OffsetCommitRecord], leader_epoch: int) -> bytes:
    """Return the batch as every other append makes it."""
    first = records[0]
    return encode_batch(
        base_offset,
        [(*encode_record(record), TIMESTAMP_MS) for record in records],
        leader_epoch=leader_epoch,
        producer_id=first.producer_id,
        producer_epoch=first.producer_epoch,
        is_transactional=first.producer_id >= 0,
    )


@st.composite
def commits(draw: st.DrawFn) -> list[OffsetCommitRecord]:
    """Commits of one request: several topics, with and without ids."""
    group_id = draw(st.text(max_size=300))
    producer_id = draw(st.sampled_from([-1, 0, 2**62]))
    names = st.sampled_from(draw(st.lists(st.text(max_size=300), min_size=1, max_size=3)))
    topic_ids = st.sampled_from([UUID(int=0), UUID(int=1), UUID(int=2**128 - 1)])
    record = st.builds(
        OffsetCommitRecord,
        st.just(group_id),
        names,
        st.integers(-(2**31), 2**31 - 1),
        st.integers(-(2**63), 2**63 - 1),
        st.integers(-(2**31), 2**31 - 1),
        draw(st.sampled_from([st.just(""), st.just("x" * 40), st.sampled_from(METADATA), st.text(max_size=200)])),
        commit_timestamp_ms=st.sampled_from([TIMESTAMP_MS, 0]),
        topic_id=topic_ids,
        producer_id=st.just(producer_id),
        producer_epoch=st.just(-1 if producer_id < 0 else 3),
    )
    return draw(st.lists(record, min_size=1, max_size=80))


@given(records=commits(), base_offset=st.integers(0, 2**62), leader_epoch=st.integers(0, 2**31 - 1))
def test_the_bytes_are_the_same(records: list[OffsetCommitRecord], base_offset: int, leader_epoch: int) -> None:
    """For any commit without expiry, in any mixture of topics and metadata."""
    quick = encode_commit_batch(base_offset, columns_of(records), TIMESTAMP_MS, leader_epoch=leader_epoch)
    assert quick == usual_way(base_offset, records, leader_epoch)


@as_one_test
@pytest.mark.parametrize("count", [63, 64, 65, 8_191, 8_192, 8_193])
def test_large_commits_are_the_same(count: int) -> None:
    """Offsets inside the batch that need two or three bytes are written as such."""
    for metadata in ("", "m"):
        records = [evolve(PLAIN, partition=index, metadata=metadata) for index in range(count)]
        assert encode_commit_batch(0, columns_of(records), TIMESTAMP_MS, leader_epoch=0) == usual_way(0, records, 0)


@pytest.mark.parametrize(
    "other",
    [
        evolve(PLAIN, metadata="m" * 32_768),
        evolve(PLAIN, expire_timestamp_ms=1),
        evolve(PLAIN, value_version=3),
        evolve(PLAIN, key_version=0),
        evolve(PLAIN, raw_value=b"\x00"),
    ],
    ids=["metadata", "expiry", "version", "key version", "value"],
)
def test_everything_else_is_declined(other: OffsetCommitRecord) -> None:
    """A record that needs another form sends its whole append the usual way, wherever it stands."""
    assert encode_commit_batch(0, columns_of([other]), TIMESTAMP_MS, leader_epoch=0) is None
    assert encode_commit_batch(0, columns_of([PLAIN, other]), TIMESTAMP_MS, leader_epoch=0) is None


def test_a_name_that_is_too_long() -> None:
    """It takes the general path, which raises the error."""
    record = evolve(PLAIN, group_id="g" * 32_768)
    assert encode_commit_batch(0, columns_of([record]), TIMESTAMP_MS, leader_epoch=0) is None
    with pytest.raises(RecordEncodingError):
        usual_way(0, [record], 0)


# ---------------------------------------------------------------- reading


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


def found_in(batch: Batch) -> dict[int, Record] | None:
    """Return the record at each log offset, None if the batch is left to others."""
    found = read_commits(batch)
    if found is None:
        return None
    records: dict[int, Record] = {}
    for commit in found:
        records.update(enumerate(CommitRecords([commit.to_topic()]), commit.log_offset))
    return records


def decoded(batch: Batch) -> dict[int, Record]:
    decode = decode_control if batch.is_control else decode_record
    return {
        offset: decode(key or b"", value, batch.producer_id, batch.producer_epoch)
        for offset, _, key, value in batch.records()
    }


def check(batch: Batch) -> bool:
    """Compare with the codec; return whether the fast path read the batch."""
    found = found_in(batch)
    assert found is None or found == decoded(batch)
    return found is not None


@as_one_test
@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 200])
@pytest.mark.parametrize(
    ("topic_id", "version"),
    [(TOPIC_ID, None), (UUID(int=0), None), (UUID(int=0), 3)],
    ids=["v4", "v4 without topic id", "v3"],
)
@pytest.mark.parametrize("name", ["t", "t" * 20, "t" * 55, "t" * 56, "t" * 57, "t" * 240])
@pytest.mark.parametrize("metadata", ["", "m", "m" * 40, "m" * 126])
def test_commits_are_read(count: int, topic_id: UUID, version: int | None, name: str, metadata: str) -> None:
    """However many they are, in each version that they have, whether lengths take one byte or two."""
    pairs = [
        commit(p, 1_000 * p, topic=name, topic_id=topic_id, version=version, metadata=metadata) for p in range(count)
    ]
    assert check(one(pairs))


def test_metadata_of_any_length_are_read() -> None:
    pairs = [commit(p, p, topic="t" * (1 + p % 9), metadata="m" * (9 - p % 9)) for p in range(100)]
    assert check(one(pairs))


def test_commits_of_many_groups_are_read() -> None:
    """A broker combines concurrent commits in one batch, with slightly different times."""
    pairs = [commit(number % 3, number, group_id="g" * (number % 40), topic=f"t{number % 7}") for number in range(300)]
    assert check(one(pairs, timestamps_ms=[1_000 + number // 5 for number in range(300)]))


def test_commits_side_by_side_come_together() -> None:
    """Consecutive commits of one topic, time and encoding are combined, up to a gap or another one in between."""
    pairs = [commit(0, 1), commit(1, 2), commit(2, 3, topic="u"), commit(3, 4), commit(4, 5, metadata="m")]
    found = read_commits(one([*pairs, commit(5, 6, metadata="n"), commit(6, 7, version=3, topic_id=UUID(int=0))]))
    assert found is not None
    assert [(each.log_offset, each.partition_indexes) for each in found] == [
        (7, (0, 1)),
        (9, (2,)),
        (10, (3,)),
        (11, (4, 5)),
        (13, (6,)),
    ]


@pytest.mark.parametrize("new_horizon_ms", [None, 900])
def test_compaction_leaves_gaps(new_horizon_ms: int | None) -> None:
    """Records keep their offsets and times in a batch from which others are gone."""
    whole = one([commit(p, p) for p in range(100)], timestamps_ms=[1_000 + p // 50 for p in range(100)])
    records = raw_records(whole, whole.payload(1_000_000))
    kept = [record for record in records if (whole.base_offset + record.offset_delta) % 3]
    (batch,) = iter_batches(rewritten(whole, kept, new_horizon_ms))
    assert batch.record_count < whole.record_count
    assert check(batch) == (new_horizon_ms is None)


def test_nothing_is_found_in_an_empty_batch() -> None:
    """Compaction leaves a batch without records where the last one was."""
    (batch,) = iter_batches(emptied(one([commit(0)])))
    assert found_in(batch) == {}


@as_one_test
@pytest.mark.parametrize(
    "other",
    [
        (commit(1)[0], None),
        (commit(1)[0], b"short"),
        (commit(1)[0], bytes(42)),
        commit(1, metadata="größe"),
        commit(1, metadata="m" * 127),
        (commit(1)[0], (commit(1, metadata="m")[1] or b"").replace(b"m", b"\xff")),
        commit(1, topic_id=UUID(int=0), version=1),
        (b"\0\2" + commit(1)[0][2:], commit(1)[1]),
        (commit(1)[0].replace(b"\0\1g", b"\0\2g"), commit(1)[1]),
        (commit(1)[0].replace(b"g", b"\xff"), commit(1)[1]),
        (commit(1)[0], (commit(1)[1] or b"")[:-16] + bytes(16)),
        (b"\0\x63", b"x" * 60),
    ],
    ids=[
        "tombstone",
        "short",
        "zeros",
        "not ASCII",
        "long metadata",
        "no UTF-8",
        "v1",
        "key",
        "length",
        "text",
        "zero topic id",
        "unknown",
    ],
)
@pytest.mark.parametrize("place", [0, 1, 70])
def test_others_are_not(other: Pair, place: int) -> None:
    """A batch that holds anything else is left to be read record by record."""
    pairs = [commit(p) for p in range(place)]
    assert found_in(one([*pairs, other, commit(99)])) is None


def test_a_transaction_is_not() -> None:
    """The marker decides on a transaction's commits."""
    assert found_in(one([commit(0)], producer_id=7, producer_epoch=0, is_transactional=True)) is None


def test_memory_for_layouts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of many lengths are read all the same."""
    monkeypatch.setattr(commit_batch, "_layouts", {})
    assert check(one([commit(0, topic="t" * length) for length in range(40, 60)]))


@given(logs())
def test_what_is_read_is_right(log: GeneratedLog) -> None:
    """For any batch, the fast path gives the codec's result."""
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
