"""The quick way to the batch of a commit gives the bytes of the usual way, or declines."""

from __future__ import annotations

from uuid import UUID

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from groupcoord.core.records import GroupTombstone, OffsetCommitRecord, OffsetTombstone, Record
from groupcoord.records.batches import encode_batch
from groupcoord.records.codec import RecordEncodingError, encode_record
from groupcoord.records.commit_batch import encode_commit_batch

TIMESTAMP_MS = 1_700_000_000_000
PLAIN = OffsetCommitRecord("group", "topic", 3, 42, 7, "", TIMESTAMP_MS, topic_id=UUID(int=5))


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
        commit_timestamp_ms=st.sampled_from([TIMESTAMP_MS, 0]),
        topic_id=topic_ids,
        producer_id=st.just(producer_id),
        producer_epoch=st.just(-1 if producer_id < 0 else 3),
    )
    return draw(st.lists(record, min_size=1, max_size=80))


@given(records=commits(), base_offset=st.integers(0, 2**62), leader_epoch=st.integers(0, 2**31 - 1))
def test_the_bytes_are_the_same(records: list[OffsetCommitRecord], base_offset: int, leader_epoch: int) -> None:
    """For any commit without metadata and expiry, in any mixture of topics."""
    quick = encode_commit_batch(base_offset, records, TIMESTAMP_MS, leader_epoch=leader_epoch)
    assert quick == usual_way(base_offset, records, leader_epoch)


@pytest.mark.parametrize("count", [63, 64, 65, 8_191, 8_192])
def test_large_commits_are_the_same(count: int) -> None:
    """Offsets inside the batch that need two bytes are written as such."""
    records = [evolve(PLAIN, partition=index) for index in range(count)]
    assert encode_commit_batch(0, records, TIMESTAMP_MS, leader_epoch=0) == usual_way(0, records, 0)


@pytest.mark.parametrize(
    "other",
    [
        evolve(PLAIN, metadata="m"),
        evolve(PLAIN, expire_timestamp_ms=1),
        evolve(PLAIN, value_version=3),
        evolve(PLAIN, key_version=0),
        evolve(PLAIN, raw_value=b"\x00"),
        OffsetTombstone("group", "topic", 3),
        GroupTombstone("group"),
    ],
    ids=str,
)
def test_everything_else_is_declined(other: Record) -> None:
    """A record that needs another form sends its whole append the usual way, wherever it stands."""
    assert encode_commit_batch(0, [other], TIMESTAMP_MS, leader_epoch=0) is None
    assert encode_commit_batch(0, [PLAIN, other], TIMESTAMP_MS, leader_epoch=0) is None


def test_too_many_are_declined() -> None:
    """More records than offsets were prepared for go the usual way."""
    assert encode_commit_batch(0, [PLAIN] * 8_193, TIMESTAMP_MS, leader_epoch=0) is None


def test_a_name_that_is_too_long() -> None:
    """It goes the usual way, which has the error for it."""
    record = evolve(PLAIN, group_id="g" * 32_768)
    assert encode_commit_batch(0, [record], TIMESTAMP_MS, leader_epoch=0) is None
    with pytest.raises(RecordEncodingError):
        usual_way(0, [record], 0)
