"""Records of ``__share_group_state``: the bytes that a broker of Kafka 4.4.0 wrote, and what else may lie there."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from groupcoord.core.log.records import OpaqueRecord
from groupcoord.core.share_state.records import (
    SharePartitionKey,
    ShareSnapshot,
    ShareTombstone,
    ShareUpdate,
    StateBatch,
    parse_share_partition,
)
from groupcoord.records.codec import encode_record
from groupcoord.records.share_state import decode_share_state
from tests.tables import as_one_test

from .driver import START_MS, Driver

AT = START_MS.to_bytes(8, "big").hex() * 2
RECORDED = [
    "00000000000000000001" + "00000000" + "ff" * 8 + AT + "0100",
    "0000" "00000000" "00000000" + "ff" * 8 + "02" + "0" * 16 + "0000000000000004" "00" "0001" "00" "010004" "0000"
    "0000",
    "0000" "00000000" "00000000" "0000000000000002" "02" "0000000000000002" "0000000000000003" "02" "0001" "00"
    "010004" "00000001",
    "0000" "00000001" "00000001" "00000000" "0000000000000002" + AT + "03"
    "0000000000000002" "0000000000000003" "02" "0001" "00" "0000000000000004" "0000000000000005" "00" "0001" "00"
    "010004" "00000001",
    "0000" "00000001" "00000004" "0000000000000002" "01" "010004" "00000001",
    "0000" "00000001" "00000004" "0000000000000003" "01" "010004" "00000002",
    "0000" "00000002" "00000001" "00000004" "0000000000000003" + AT + "04"
    "0000000000000003" "0000000000000003" "02" "0001" "00" "0000000000000004" "0000000000000005" "00" "0001" "00"
    "0000000000000006" "0000000000000006" "02" "0001" "00" "010004" "00000002",
    "0000" "00000002" "00000004" "0000000000000003" "02" "0000000000000007" "0000000000000007" "02" "0001" "00"
    "010004" "00000002",
    "0000" "00000003" "00000001" "00000000" "0000000000000005" + AT + "01" "010004" "00000000",
    None,
]  # fmt: skip
"""What a broker wrote upon the requests below, but for the times."""


def test_bytes_are_those_of_a_broker() -> None:
    """A history of requests leaves, byte for byte, the values that a broker of Kafka 4.4.0 wrote for it."""
    driver = Driver(share_coordinator_snapshot_update_records_per_snapshot=2)
    driver.initialize(1, -1)
    driver.write((0, 4, 0, 1), state_epoch=1)
    driver.write((2, 2, 2, 1), (3, 3, 2, 1), state_epoch=1, leader_epoch=3, start_offset=2, count=1)
    driver.write((5, 5, 0, 1), state_epoch=5, start_offset=2, count=1)
    driver.read(4)
    driver.read(4)
    driver.write(state_epoch=1, leader_epoch=4, start_offset=3, count=2)
    driver.write((6, 6, 2, 1), state_epoch=1, leader_epoch=4, start_offset=2, count=9)
    driver.write((7, 7, 2, 1), state_epoch=1, leader_epoch=6, start_offset=2, count=9)
    driver.initialize(1, 5)
    driver.delete()
    driver.delete()
    assert driver.values() == RECORDED


def test_keys_are_those_of_a_broker() -> None:
    """A key names its type, the group, the topic's id and the partition; an update's type is 1."""
    driver = Driver()
    driver.initialize()
    driver.write((0, 0, 2, 1))
    start, behind = "000", "000167" + "0" * 31 + "7" + "00000000"
    assert [record.key.hex() for record in driver.store.read(0)] == [start + "0" + behind, start + "1" + behind]


KEYS = st.builds(
    SharePartitionKey, st.text(max_size=5), st.uuids(), st.integers(min_value=-(2**31), max_value=2**31 - 1)
)
INT32, INT64 = (st.integers(-(2**bits), 2**bits - 1) for bits in (31, 63))
BATCHES = st.lists(
    st.builds(StateBatch, INT64, INT64, st.integers(-128, 127), st.integers(-(2**15), 2**15 - 1)), max_size=3
).map(tuple)
RECORDS = (
    st.builds(ShareSnapshot, KEYS, INT32, INT32, INT32, INT64, INT64, INT64, INT32, BATCHES)
    | st.builds(ShareUpdate, KEYS, INT32, INT32, INT64, INT32, BATCHES)
    | st.builds(ShareTombstone, KEYS)
)


@given(RECORDS)
def test_there_and_back(record: ShareSnapshot | ShareUpdate | ShareTombstone) -> None:
    assert decode_share_state(*encode_record(record)) == record


@given(RECORDS, st.integers(min_value=0), st.binary(min_size=1, max_size=3))
def test_anything_else_is_kept_as_it_is(
    record: ShareSnapshot | ShareUpdate | ShareTombstone, cut: int, more: bytes
) -> None:
    """Bytes that are cut short, or have something behind them, are no record, and don't raise."""
    key, value = encode_record(record)
    if value is None:
        value = b""
    for broken in (value[: cut % max(len(value), 1)], value + more):
        found = decode_share_state(key, broken)
        assert found == OpaqueRecord(key, broken) or encode_record(found) == (key, broken)
    assert decode_share_state(key[:-1], value) == OpaqueRecord(key[:-1], value)


@given(KEYS.filter(lambda key: key.group_id and key.partition >= 0))
def test_keys_as_text(key: SharePartitionKey) -> None:
    """A FindCoordinator key gives the share-partition, also if the group id has colons."""
    assert parse_share_partition(key.text) == key
    assert parse_share_partition(key._replace(group_id=f"a:{key.group_id}").text).group_id == f"a:{key.group_id}"


@as_one_test
@pytest.mark.parametrize("text", ["", "g", "g:x:0", ":AAAAAAAAAAAAAAAAAAAAAA:0", "g:AAAAAAAAAAAAAAAAAAAAAA:x"])
def test_no_keys(text: str) -> None:
    """An invalid key raises ValueError."""
    with pytest.raises(ValueError, match=r"."):
        parse_share_partition(text)
