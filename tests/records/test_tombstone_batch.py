"""Batches of tombstones are written as the usual way does it, or left to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupcoord.core.log.records import GroupTombstone, OffsetCommitRecord, OffsetTombstone, Record
from groupcoord.records.batches import encode_batch
from groupcoord.records.codec import RecordEncodingError, encode_record
from groupcoord.records.commit_batch import encode_tombstone_batch
from tests.records.consumer_group_records import consumer_group_tombstones

TIMESTAMP_MS = 1_700_000_000_000
NAMES = st.sampled_from(["", "a", "b", "größe", "x" * 100, "y" * 300])
OFFSETS = st.builds(OffsetTombstone, NAMES, NAMES, st.integers(-(2**31), 2**31 - 1))
GROUPS = st.builds(GroupTombstone, NAMES) | consumer_group_tombstones(NAMES, NAMES)


def usual_way(base_offset: int, records: list[Record], leader_epoch: int) -> bytes:
    """Return the batch as every other append makes it."""
    encoded = [(*encode_record(record), TIMESTAMP_MS) for record in records]
    return encode_batch(base_offset, encoded, leader_epoch=leader_epoch)


@given(st.lists(OFFSETS | OFFSETS | GROUPS, min_size=1, max_size=100), st.integers(0, 2**62), st.integers(0, 2**31 - 1))
def test_the_bytes_are_the_same(records: list[Record], base_offset: int, leader_epoch: int) -> None:
    """For tombstones of any offsets and groups, in any order."""
    quick = encode_tombstone_batch(base_offset, records, TIMESTAMP_MS, leader_epoch)
    assert quick == usual_way(base_offset, records, leader_epoch)


@pytest.mark.parametrize("count", [63, 65, 8_191, 8_193])
def test_large_deletions_are_the_same(count: int) -> None:
    """Offsets inside the batch that need two or three bytes are written as such."""
    records: list[Record] = [OffsetTombstone("group", "topic", index) for index in range(count)]
    assert encode_tombstone_batch(0, records, TIMESTAMP_MS, 0) == usual_way(0, records, 0)


@pytest.mark.parametrize(
    "other",
    [
        OffsetCommitRecord("group", "topic", 0, 1),
        OffsetTombstone("group", "topic", 0, key_version=0),
        OffsetTombstone("group", "t" * 32_768, 0),
        OffsetTombstone("g" * 32_768, "topic", 0),
        OffsetTombstone("group", "\udc80", 0),
    ],
    ids=["commit", "key version", "topic", "group", "surrogate"],
)
def test_everything_else_is_declined(other: Record) -> None:
    """A record that needs another form, or can't be written, sends its whole append the usual way."""
    assert encode_tombstone_batch(0, [other], TIMESTAMP_MS, 0) is None
    assert encode_tombstone_batch(0, [OffsetTombstone("a", "b", 0), other], TIMESTAMP_MS, 0) is None


def test_a_group_whose_name_is_too_long() -> None:
    """Its tombstone cannot be encoded."""
    with pytest.raises(RecordEncodingError):
        encode_tombstone_batch(0, [GroupTombstone("g" * 32_768)], TIMESTAMP_MS, 0)
