"""Keys and values of ``__consumer_offsets``: golden bytes of Kafka 4.4, round trips, and malformed bytes."""

from __future__ import annotations

import subprocess
import sys
from uuid import UUID

import pytest
from attrs import evolve
from hypothesis import given, strategies as st

from groupcoord.core.log.records import (
    GroupMetadataRecord,
    GroupTombstone,
    MemberRecord,
    OffsetCommitRecord,
    OffsetTombstone,
    OpaqueRecord,
    TransactionMarker,
)
from groupcoord.records.codec import RecordEncodingError, decode_control, decode_record, encode_record
from groupcoord.records.typed import parse_record
from tests.tables import as_one_test

from .consumer_group_records import CONSUMER_GROUP_GOLDEN, EXPRESSION, GROUP, ID, MEMBER, MEMBER_VALUE
from .share_group_records import SHARE_GROUP_GOLDEN
from .streams_group_records import STREAMS_GROUP_GOLDEN, STREAMS_MEMBER_VALUE

GOLDEN_OF_KINDS = (*CONSUMER_GROUP_GOLDEN, *SHARE_GROUP_GOLDEN, *STREAMS_GROUP_GOLDEN)

TOPIC_ID = UUID(bytes=bytes(range(1, 17)))
OFFSET_KEY = bytes.fromhex("0001 0002 6731 0002 7431 00000003")
LEGACY_OFFSET_KEY = b"\x00\x00" + OFFSET_KEY[2:]
V4_WITH_ID = "0004 0000000000000064 00000007 02 6d 00000000000003e8 01 00 10 0102030405060708090a0b0c0d0e0f10"


def offset_commit(**changes: object) -> OffsetCommitRecord:
    values: dict[str, object] = {"offset": 100, "leader_epoch": -1, "metadata": "m", "commit_timestamp_ms": 1000}
    return OffsetCommitRecord("g1", "t1", 3, **{**values, **changes})  # type: ignore[arg-type]


GOLDEN_OFFSETS = [
    ("0000 0000000000000064 0001 6d 00000000000003e8", offset_commit(value_version=0)),
    ("0001 0000000000000064 0001 6d 00000000000003e8 0000000000001388", offset_commit(expire_timestamp_ms=5000)),
    ("0001 0000000000000064 0001 6d 00000000000003e8 ffffffffffffffff", offset_commit(value_version=1)),
    ("0002 0000000000000064 0001 6d 00000000000003e8", offset_commit(value_version=2)),
    ("0003 0000000000000064 00000007 0001 6d 00000000000003e8", offset_commit(leader_epoch=7, value_version=3)),
    (V4_WITH_ID, offset_commit(leader_epoch=7, topic_id=TOPIC_ID)),
    ("0004 0000000000000064 ffffffff 01 00000000000003e8 00", offset_commit(metadata="")),
    # From the log of a 4.4.0 broker: no metadata, with a topic id.
    (
        "0004 000000000000000a ffffffff 01 000001a1fcfd6e70 01 00 10 01638488ab2842bd933bb9f6dcd08096",
        offset_commit(
            offset=10,
            metadata="",
            commit_timestamp_ms=0x1A1FCFD6E70,
            topic_id=UUID("01638488-ab28-42bd-933b-b9f6dcd08096"),
        ),
    ),
]


@as_one_test
@pytest.mark.parametrize(("value", "record"), GOLDEN_OFFSETS)
def test_offset_golden(value: str, record: OffsetCommitRecord) -> None:
    """Each version of an offset's value decodes and encodes to the bytes of Kafka 4.4."""
    assert decode_record(OFFSET_KEY, bytes.fromhex(value)) == record
    assert encode_record(record) == (OFFSET_KEY, bytes.fromhex(value))


def test_offset_tombstone() -> None:
    """A key without a value is a tombstone."""
    assert decode_record(OFFSET_KEY, None) == OffsetTombstone("g1", "t1", 3)
    assert encode_record(OffsetTombstone("g1", "t1", 3)) == (OFFSET_KEY, None)


def test_legacy_key() -> None:
    """A key of type 0 stands for the same offset, with a value of version 0 only, and is written as it was read."""
    value = bytes.fromhex(GOLDEN_OFFSETS[0][0])
    tombstone = OffsetTombstone("g1", "t1", 3, key_version=0)

    assert decode_record(LEGACY_OFFSET_KEY, value) == offset_commit(key_version=0)
    assert encode_record(offset_commit(key_version=0)) == (LEGACY_OFFSET_KEY, value)
    assert decode_record(LEGACY_OFFSET_KEY, None) == tombstone
    assert encode_record(tombstone) == (LEGACY_OFFSET_KEY, None)
    for other, _ in GOLDEN_OFFSETS[1:]:
        other_value = bytes.fromhex(other)
        assert decode_record(LEGACY_OFFSET_KEY, other_value) == OpaqueRecord(LEGACY_OFFSET_KEY, other_value)


def test_expiry_drops_what_version_1_lacks() -> None:
    """A value with an expiry is of version 1, which has neither leader epoch nor topic id."""
    record = offset_commit(leader_epoch=7, topic_id=TOPIC_ID, expire_timestamp_ms=5000)

    assert encode_record(record) == (OFFSET_KEY, bytes.fromhex(GOLDEN_OFFSETS[1][0]))


def test_producer_of_offsets() -> None:
    """The batch's producer is part of offsets, however their values are encoded."""
    for value, _ in GOLDEN_OFFSETS:
        record = decode_record(OFFSET_KEY, bytes.fromhex(value), 77, 3)
        assert isinstance(record, OffsetCommitRecord)
        assert (record.producer_id, record.producer_epoch) == (77, 3)


GROUP_KEY = bytes.fromhex("0002 0003 677270")
GOLDEN_GROUPS = {
    0: "00000008636f6e73756d657200000005000572616e676500036d2d310000000100036d2d31000163000a2f3132372e302e30"
    "2e31000027100000000201020000000103",
    1: "00010008636f6e73756d657200000005000572616e676500036d2d310000000100036d2d31000163000a2f3132372e302e30"
    "2e310000ea60000027100000000201020000000103",
    2: "00020008636f6e73756d657200000005000572616e676500036d2d310000018bcfe568000000000100036d2d31000163000a"
    "2f3132372e302e302e310000ea60000027100000000201020000000103",
    3: "00030008636f6e73756d657200000005000572616e676500036d2d310000018bcfe568000000000100036d2d310002693100"
    "0163000a2f3132372e302e302e310000ea60000027100000000201020000000103",
    4: "000409636f6e73756d6572000000050672616e6765046d2d310000018bcfe5680002046d2d3103693102630b2f3132372e30"
    "2e302e310000ea600000271003010202030000",
}
GOLDEN_EMPTY_GROUPS = {
    0: "0000000000000000ffffffff00000000",
    1: "0001000000000000ffffffff00000000",
    2: "0002000000000000ffffffff0000018bcfe5680000000000",
    3: "0003000000000000ffffffff0000018bcfe5680000000000",
    4: "0004010000000000000000018bcfe568000100",
}


@pytest.mark.parametrize("version", range(5))
def test_group_golden(version: int) -> None:
    """Each version of a group's metadata decodes and encodes to the bytes of Kafka 4.4; missing fields get defaults."""
    member = MemberRecord(
        "m-1",
        "i1" if version >= 3 else None,
        "c",
        "/127.0.0.1",
        60_000 if version else -1,
        10_000,
        b"\x01\x02",
        b"\x03",
    )
    record = GroupMetadataRecord(
        "grp",
        "consumer",
        5,
        "range",
        "m-1",
        1_700_000_000_000 if version >= 2 else -1,
        (member,),
        None if version == 3 else version,
    )
    value = bytes.fromhex(GOLDEN_GROUPS[version])

    assert decode_record(GROUP_KEY, value) == record
    assert encode_record(record) == (GROUP_KEY, value)


@pytest.mark.parametrize("version", range(5))
def test_empty_group_golden(version: int) -> None:
    """The record of a group without members and protocol, in each version."""
    timestamp_ms = 1_700_000_000_000 if version >= 2 else -1
    record = GroupMetadataRecord("grp", "", 0, None, None, timestamp_ms, (), None if version == 3 else version)
    value = bytes.fromhex(GOLDEN_EMPTY_GROUPS[version])

    assert decode_record(GROUP_KEY, value) == record
    assert encode_record(record) == (GROUP_KEY, value)


def test_group_golden_without_instance_id() -> None:
    """A dynamic member's instance id is null, in versions 3 and 4."""
    key = bytes.fromhex("0002 0002 6731")
    v3 = bytes.fromhex(
        "0003 0008 636f6e73756d6572 00000005 0005 72616e6765 0002 6d31 00000000000003e8 00000001 0002 6d31 ffff 0001 63"
        "000a 2f3132372e302e302e31 000493e0 0000afc8 00000002 0102 00000001 03"
    )
    v4 = bytes.fromhex(
        "0004 09 636f6e73756d6572 00000005 06 72616e6765 03 6d31 00000000000003e8 02 03 6d31 00 02 63 0b"
        "2f3132372e302e302e31 000493e0 0000afc8 03 0102 02 03 00 00"
    )
    member = MemberRecord("m1", None, "c", "/127.0.0.1", 300_000, 45_000, b"\x01\x02", b"\x03")
    record = GroupMetadataRecord("g1", "consumer", 5, "range", "m1", 1000, (member,))

    assert decode_record(key, v3) == record
    assert encode_record(record) == (key, v3)
    record.value_version = 4
    assert decode_record(key, v4) == record
    assert encode_record(record) == (key, v4)


def test_group_tombstone() -> None:
    """A group's key without a value is its tombstone."""
    assert decode_record(GROUP_KEY, None) == GroupTombstone("grp")
    assert encode_record(GroupTombstone("grp")) == (GROUP_KEY, None)


@pytest.mark.parametrize(("key", "committed"), [("00000001", True), ("00000000", False)])
def test_marker_golden(key: str, committed: bool) -> None:
    """Commit and abort markers of coordinator epoch 9."""
    value = bytes.fromhex("000000000009")
    marker = TransactionMarker(77, 3, committed, 9)

    assert decode_control(bytes.fromhex(key), value, 77, 3) == marker
    assert encode_record(marker) == (bytes.fromhex(key), value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("00000002", "000000000009"),
        ("0000", "000000000009"),
        ("00000001", "0000000000"),
        ("00000001", None),
        ("ffff0001", "000000000009"),
    ],
)
def test_other_control_records_are_opaque(key: str, value: str | None) -> None:
    """Control records of other types, and broken ones, are kept as they are."""
    key_bytes, value_bytes = bytes.fromhex(key), None if value is None else bytes.fromhex(value)

    assert decode_control(key_bytes, value_bytes, 77, 3) == OpaqueRecord(key_bytes, value_bytes, 77, 3, True)


def test_newer_marker_is_read() -> None:
    """A marker of a later version still ends its transaction: version 0 fields come first."""
    newer = decode_control(bytes.fromhex("0001 0001 00"), bytes.fromhex("0001 00000009 00"), 77, 3)

    assert newer == TransactionMarker(77, 3, True, 9)


UNKNOWN_RECORDS = [
    ("0009 0002 6731", "0000 00000002 1122334455667788 00"),
    ("004d 01", "00"),
    ("ffff", None),
    ("00", "00"),
    ("", None),
]


@as_one_test
@pytest.mark.parametrize(("key", "value"), UNKNOWN_RECORDS)
def test_unknown_types_are_kept(key: str, value: str | None) -> None:
    """A record of a type this module does not know keeps its bytes, both ways."""
    key_bytes, value_bytes = bytes.fromhex(key), None if value is None else bytes.fromhex(value)
    record = OpaqueRecord(key_bytes, value_bytes)

    assert decode_record(key_bytes, value_bytes) == record
    assert encode_record(record) == (key_bytes, value_bytes)


@pytest.mark.parametrize("version", [-1, 5, 9, 32_767])
def test_unknown_value_versions_are_kept(version: int) -> None:
    for key, value in ((OFFSET_KEY, V4_WITH_ID), (GROUP_KEY, GOLDEN_GROUPS[3])):
        changed = version.to_bytes(2, "big", signed=True) + bytes.fromhex(value)[2:]
        assert decode_record(key, changed) == OpaqueRecord(key, changed)


@as_one_test
@pytest.mark.parametrize(
    ("key", "value"),
    [(OFFSET_KEY, value) for value, _ in GOLDEN_OFFSETS]
    + [(GROUP_KEY, value) for value in (*GOLDEN_GROUPS.values(), *GOLDEN_EMPTY_GROUPS.values())]
    + [(bytes.fromhex(key), value) for key, value, _ in GOLDEN_OF_KINDS],
)
def test_cut_and_prolonged_bytes_are_opaque(key: bytes, value: str) -> None:
    """Bytes that end early or go on too long, in key or value, are malformed wherever the cut is."""
    whole = bytes.fromhex(value)
    for end in range(len(whole)):
        assert decode_record(key, whole[:end]) == OpaqueRecord(key, whole[:end])
    for end in range(len(key)):
        assert decode_record(key[:end], whole) == OpaqueRecord(key[:end], whole)
    assert decode_record(key, whole + b"\x00") == OpaqueRecord(key, whole + b"\x00")
    assert decode_record(key + b"\x00", whole) == OpaqueRecord(key + b"\x00", whole)


@as_one_test
@pytest.mark.parametrize(
    ("key", "value"),
    [
        (OFFSET_KEY.hex(), "0003 0000000000000064 00000007 ffff 00000000000003e8"),  # null metadata
        (OFFSET_KEY.hex(), "0003 0000000000000064 00000007 0001 ff 00000000000003e8"),  # not UTF-8
        (OFFSET_KEY.hex(), "0004 0000000000000064 00000007 00 00000000000003e8 00"),  # null metadata
        (
            OFFSET_KEY.hex(),
            "0004 0000000000000064 00000007 01 00000000000003e8 01 00 02 0102",
        ),  # a short topic id
        (OFFSET_KEY.hex(), "0004 0000000000000064 00000007 ffffffffffff01"),  # an endless varint
        (GROUP_KEY.hex(), "0000 0000 00000000 ffff ffff 7fffffff"),  # two thousand million members
        (GROUP_KEY.hex(), "0000 0000 00000000 ffff ffff ffffffff"),  # null members
        (GROUP_KEY.hex(), "0004 01 00000000 00 00 0000018bcfe56800 00 00"),  # null members
        (GROUP_KEY.hex(), "0004 01 00000000 00 00 0000018bcfe56800 01 ffffffff0f"),  # endless tags
        ("0001 ffff 0002 7431 00000003", V4_WITH_ID),  # null group id
        ("0001 0002 6731 7fff 7431 00000003", V4_WITH_ID),  # a topic longer than the key
        (f"0003 {GROUP}", "0001 00000002 00"),  # a version to come
        (f"0003 {GROUP}", "ffff 00000002 00"),
        (f"0003 {GROUP}", "0000 00000002 01 00 04 11223344"),  # a hash of four bytes
        (f"0003 {GROUP}", "0000 00000002 ffffffff0f"),  # endless tags
        ("0003 ffff", "0000 00000002 00"),  # null group id
        ("0003 0002 ffff", "0000 00000002 00"),  # not UTF-8
        (f"0005 {GROUP} ffff", f"{MEMBER_VALUE} 01 00 01 00"),  # null member id
        (f"0005 {MEMBER}", f"{MEMBER_VALUE} 01 00 01 02"),  # a structure is there or not
        (f"0005 {MEMBER}", f"{MEMBER_VALUE} 01 00 02 00 00"),  # null, and a byte too many
        (f"0005 {MEMBER}", f"{MEMBER_VALUE} 01 00 06 01 0000afc8 00"),  # null protocols
        (f"0007 {MEMBER}", "0000 00 00"),  # null topics
        (f"0007 {MEMBER}", f"0000 02 {ID} ffffffff07 00000000 00 00"),  # two thousand million partitions
        (f"0007 {MEMBER}", "0000 ffffffff07 00"),  # as many topics
        (f"0008 {MEMBER}", f"0000 00000002 00000001 00 02 {ID} 01 01 00 02 05 00 01 00"),  # four epochs in no bytes
        (f"000a {MEMBER}", "0000 00 02 63 02 68 00 00"),  # null topics
        (f"000f {GROUP}", f"0000 01 02 {ID} 00 01 00 01 00"),  # null name
        (f"0010 {EXPRESSION}", "0000 02 00 000000000000000c 00000000000003e8 00"),  # null topic
        (f"0011 {GROUP}", "0001 00000002 0000000000000000 00"),  # a version to come
        (f"0011 {GROUP}", "0000 00000002 0000000000000000 01 00 02 0000"),  # an epoch of two bytes
        (f"0011 {GROUP}", "0000 00000002 0000000000000000 01 01 06 ffffffff07"),  # two thousand million settings
        (f"0013 {MEMBER}", f"{STREAMS_MEMBER_VALUE} 00 01 00"),  # an endpoint is there or not
        (f"0013 {MEMBER}", f"{STREAMS_MEMBER_VALUE} ff 00 00"),  # null tags
        (f"0015 {MEMBER}", "0000 01 01 00 00"),  # null warm-up tasks
        (f"0016 {MEMBER}", "0000 00000002 00000001 01 02 02 30 02 00000000 01 00 02 05 00 01 01 01 01 01 00"),
        (f"0017 {GROUP}", "0000 00000000 02 02 30 01 01 01 01 01 02 ffffffff07 01 01 00 00 00"),  # so many places
        (f"0003 {GROUP}", "0000 00000002 ffffffffff01"),  # an endless varint
        (f"0003 {GROUP}", "0000 00000002 01 02 7f"),  # a tag longer than the value
        ("0003 0003 6731", "0000 00000002 00"),  # a group id longer than the key
        (f"0007 {MEMBER}", f"0000 02 {ID} ffffffff0f 00000000 00 00"),  # null partitions
    ],
)
def test_malformed_bytes_are_opaque(key: str, value: str) -> None:
    """Bytes outside the schema are kept unchanged, and no large allocation is made."""
    key_bytes, value_bytes = bytes.fromhex(key), bytes.fromhex(value)

    assert decode_record(key_bytes, value_bytes) == OpaqueRecord(key_bytes, value_bytes)
    assert parse_record(key_bytes, value_bytes) is None


def test_unknown_tags_are_kept() -> None:
    """Tagged fields of later versions are ignored (KIP-915), and encoded again."""
    group = bytes.fromhex("0004 01 00000000 00 00 0000018bcfe56800 01 01 05 02 abcd")
    offset = bytes.fromhex(V4_WITH_ID.replace("01 00 10", "02 00 10") + "05 01 ff")
    known_group = decode_record(GROUP_KEY, bytes.fromhex(GOLDEN_EMPTY_GROUPS[4]))
    assert isinstance(known_group, GroupMetadataRecord)

    assert decode_record(GROUP_KEY, group) == evolve(known_group, raw_value=group)
    assert decode_record(OFFSET_KEY, offset) == offset_commit(leader_epoch=7, topic_id=TOPIC_ID, raw_value=offset)
    assert encode_record(decode_record(GROUP_KEY, group)) == (GROUP_KEY, group)
    assert encode_record(decode_record(OFFSET_KEY, offset)) == (OFFSET_KEY, offset)


@pytest.mark.parametrize(
    "value",
    [
        "0004 0000000000000064 ffffffff 01 00000000000003e8 01 00 10 00000000000000000000000000000000",  # zero topic id
        "0004 0000000000000064 ffffffff 8100 00000000000003e8 00",  # a length of two bytes where one would do
        "0004 0000000000000064 ffffffff 01 00000000000003e8 02 07 00 06 00",  # tags not in order
    ],
)
def test_what_brokers_read_but_never_write(value: str) -> None:
    """Bytes that a broker would read are read, and written as they were."""
    value_bytes = bytes.fromhex(value)
    record = decode_record(OFFSET_KEY, value_bytes)

    assert record == offset_commit(metadata="", raw_value=value_bytes)
    assert encode_record(record) == (OFFSET_KEY, value_bytes)


def test_unknown_key_version() -> None:
    """Only 0 and 1 are versions of an offset's key."""
    for record in (offset_commit(key_version=2), OffsetTombstone("g1", "t1", 3, key_version=2)):
        with pytest.raises(RecordEncodingError, match="key version 2"):
            encode_record(record)


@as_one_test
@pytest.mark.parametrize(
    "record",
    [
        OffsetTombstone("g" * 32_768, "t", 0),
        OffsetCommitRecord("g", "é" * 16_384, 0, 0),
        OffsetCommitRecord("g", "t", 0, 0, metadata="m" * 32_768),
        OffsetCommitRecord("g", "t", 0, 0, metadata="m" * 32_768, value_version=3),
        OffsetCommitRecord("g", "t", 2**31, 0),
        OffsetCommitRecord("g", "t", 0, 2**63),
        OffsetCommitRecord("g", "t", 0, 0, value_version=5),
        OffsetCommitRecord("\ud800", "t", 0, 0),
        GroupTombstone("g" * 32_768),
        GroupMetadataRecord("g", "consumer", 2**31, None, None),
        GroupMetadataRecord("g", "consumer", 0, None, None, value_version=-1),
        TransactionMarker(1, 0, True, 2**31),
    ],
)
def test_what_no_field_can_hold(record: OffsetCommitRecord) -> None:
    """Values that don't fit their field raise an error that is a ValueError."""
    with pytest.raises(RecordEncodingError) as raised:
        encode_record(record)

    assert isinstance(raised.value, ValueError)


def test_too_long_group_id_is_named() -> None:
    """The error of an overlong group id names the string and its length; one byte less is valid."""
    with pytest.raises(RecordEncodingError, match="the group has 32768 bytes; at most 32767"):
        encode_record(GroupTombstone("g" * 32_768))
    key, value = encode_record(OffsetTombstone("g" * 32_767, "t", 0))
    assert decode_record(key, value) == OffsetTombstone("g" * 32_767, "t", 0)


def test_not_a_record() -> None:
    """Anything but a record is the caller's mistake."""
    with pytest.raises(TypeError, match="not a record"):
        encode_record("record")  # type: ignore[arg-type]


def test_codec_needs_no_extra() -> None:
    """Keys and values work in the base install, without kio, crc32c and cramjam."""
    script = (
        "import sys\n"
        "for name in ('kio', 'crc32c', 'cramjam'): sys.modules[name] = None\n"
        "from groupcoord.log_store import LogRecord\n"
        "from groupcoord.core.log.records import GroupTombstone\n"
        "assert LogRecord(GroupTombstone('grp'), 0).key == bytes.fromhex('00020003677270')\n"
    )

    subprocess.run([sys.executable, "-c", script], check=True, timeout=30)


# ---------------------------------------------------------------- properties


@given(
    st.sampled_from([OFFSET_KEY, LEGACY_OFFSET_KEY, GROUP_KEY]) | st.binary(max_size=20),
    st.none()
    | st.binary(max_size=80)
    | st.builds(lambda v, rest: bytes((0, v)) + rest, st.integers(0, 6), st.binary(max_size=80)),
)
def test_decoding_never_raises(key: bytes, value: bytes | None) -> None:
    """Any bytes decode to a record, which encodes to the same bytes."""
    assert encode_record(decode_record(key, value)) == (key, value)
    marker = decode_control(key, value, 1, 0)
    assert isinstance(marker, TransactionMarker) or encode_record(marker) == (key, value)
