"""Records of every type field by field: what is described, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attrs import evolve

from groupcoord.records.codec import RecordEncodingError
from groupcoord.records.describe import (
    control_name,
    describe_assignment,
    describe_control,
    describe_record,
    describe_subscription,
    record_name,
)
from groupcoord.records.schemas import SCHEMAS, RecordType
from groupcoord.records.typed import TypedRecord, build_record, parse_record
from groupcoord.schema.engine import parse_structures
from tests.tables import as_one_test

ID = "0102030405060708090a0b0c0d0e0f10"
GROUP_KEY = "0002 6731"
MEMBER_KEY = "0002 6731 0002 6d31"
MEMBER = {"instanceId": None, "rackId": "r", "clientId": "c", "clientHost": "/127.0.0.1"}


def as_bytes(record_type: int, key: str, value: str) -> tuple[bytes, bytes]:
    return record_type.to_bytes(2, "big") + bytes.fromhex(key), bytes.fromhex(value)


def test_unknown_tags_are_kept() -> None:
    """A tagged field of a version to come is kept with its number, and described."""
    key, value = as_bytes(3, GROUP_KEY, "0000 00000002 02 00 08 1122334455667788 8c01 02 abcd")
    record = parse_record(key, value)

    assert record is not None
    assert record.value == {
        "epoch": 2,
        "metadataHash": 0x1122334455667788,
        "unknownTaggedFields": [(140, b"\xab\xcd")],
    }
    assert build_record(record) == (key, value)
    described = describe_record(key, value)["value"]
    assert described["data"]["unknownTaggedFields"] == [{"tag": 140, "hex": "abcd"}]


@as_one_test
@pytest.mark.parametrize(
    ("record_type", "key", "value"),
    [
        (77, GROUP_KEY, "0000 00000002 00"),
        (9, GROUP_KEY, "0000 00000002 00"),
        (3, GROUP_KEY, "0001 00000002 00"),
        (3, GROUP_KEY, "00"),
        (3, GROUP_KEY, ""),
        (3, "0003 6731", "0000 00000002 00"),
        (3, GROUP_KEY, "0000 00000002"),
        # What follows a broker reads, but does not write.
        (3, GROUP_KEY, "0000 00000002 02 02 00 01 00"),  # tags not in order
        (3, GROUP_KEY, "0000 00000002 02 02 00 02 00"),  # a tag twice
        (3, GROUP_KEY, "0000 00000002 8000"),  # a varint longer than it need be
    ],
)
def test_what_is_not_known(record_type: int, key: str, value: str) -> None:
    """Unknown types and versions and malformed bytes are no typed records; they are described with all their bytes."""
    key_bytes, value_bytes = as_bytes(record_type, key, value)

    assert parse_record(key_bytes, value_bytes) is None
    described = describe_record(key_bytes, value_bytes)
    assert value_bytes.hex() == described["value"]["hex"]
    assert described["key"]["type"] == record_type
    assert ("data" in described["key"]) != ("hex" in described["key"])


def test_nothing_to_describe() -> None:
    """Records without a key, or with one too short for a type, are described too."""
    assert describe_record(None, b"\x00\x01x") == {"key": None, "value": {"version": 1, "hex": "000178"}}
    assert describe_record(b"\x07", None) == {"key": {"hex": "07"}, "value": None}
    assert (record_name(None), record_name(b"\x07"), record_name(b"\x00\x08")) == (
        "UNKNOWN",
        "UNKNOWN",
        "CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT",
    )


def test_control_records() -> None:
    """Markers are described by version and type; other control records by their type and bytes."""
    marker = describe_control(bytes.fromhex("00000001"), bytes.fromhex("000000000009"))
    assert marker == {
        "key": {"version": 0, "data": {"type": 1}},
        "value": {"version": 0, "data": {"coordinatorEpoch": 9}},
    }
    other = describe_control(bytes.fromhex("00000002"), bytes.fromhex("0000ab"))
    assert other == {"key": {"version": 0, "data": {"type": 2}}, "value": {"version": 0, "hex": "0000ab"}}
    assert describe_control(b"\x00", None) == {"key": {"hex": "00"}, "value": None}
    names = [control_name(bytes((0, 0, 0, number))) for number in (0, 1, 2, 99)]
    assert names == ["ABORT", "COMMIT", "LEADER_CHANGE", "UNKNOWN"]
    assert (control_name(None), control_name(b"\x00")) == ("UNKNOWN", "UNKNOWN")


@as_one_test
@pytest.mark.parametrize(
    ("data", "described"),
    [
        (
            "0000 00000001 0002 7431 ffffffff",
            {"version": 0, "data": {"topics": ["t1"], "userData": None}},
        ),
        (
            "0003 00000000 00000002 abcd 00000001 0002 7431 00000001 00000005 00000009 0001 72",
            {
                "version": 3,
                "data": {
                    "topics": [],
                    "userData": "abcd",
                    "ownedPartitions": [{"topic": "t1", "partitions": [5]}],
                    "generationId": 9,
                    "rackId": "r",
                },
            },
        ),
        (
            "0007 00000000 ffffffff 00000000 ffffffff ffff beef",  # a version to come is read like the newest
            {
                "version": 7,
                "data": {"topics": [], "userData": None, "ownedPartitions": [], "generationId": -1, "rackId": None},
                "unread": "beef",
            },
        ),
        ("0001 00000000 ffffffff", "000100000000ffffffff"),  # version 1 without owned partitions
        ("ffff 00000000 ffffffff", "ffff00000000ffffffff"),
        ("0000 7fffffff", "00007fffffff"),
        ("00", "00"),
        ("", ""),
    ],
)
def test_subscriptions(data: str, described: object) -> None:
    """Subscriptions of every version of the consumer protocol are parsed, or stay hexadecimal."""
    assert describe_subscription(bytes.fromhex(data)) == described


def test_assignments() -> None:
    """Assignments are parsed likewise."""
    data = bytes.fromhex("0001 00000001 0002 7431 00000002 00000000 00000002 ffffffff")

    assert describe_assignment(data) == {
        "version": 1,
        "data": {"assignedPartitions": [{"topic": "t1", "partitions": [0, 2]}], "userData": None},
    }
    assert describe_assignment(b"") == ""


GROUP_VALUE = (
    "0003 {protocol} 00000005 0005 72616e6765 0002 6d31 00000000000003e8 00000001 0002 6d31 ffff 0001 63 0001 68 "
    "000493e0 0000afc8 0000000a 0000 00000000 ffffffff 00000001 03"
)


def described_member(protocol: str, *, raw: bool) -> tuple[object, object]:
    value = bytes.fromhex(GROUP_VALUE.replace("{protocol}", protocol))
    described = describe_record(bytes.fromhex("0002 0002 6731"), value, raw=raw)
    (member,) = described["value"]["data"]["members"]
    return member["subscription"], member["assignment"]


def test_bytes_of_members() -> None:
    """The consumer protocol is read in groups of that type alone; raw bytes are in base 64, as Kafka prints them."""
    consumer, connect = "0008 636f6e73756d6572", "0007 636f6e6e656374"
    subscription = {"version": 0, "data": {"topics": [], "userData": None}}

    assert described_member(consumer, raw=False) == (subscription, "03")
    assert described_member(connect, raw=False) == ("000000000000ffffffff", "03")
    assert described_member(consumer, raw=True) == ("AAAAAAAA/////w==", "Aw==")


def test_bytes_of_classic_members_of_consumer_groups() -> None:
    """A member that still uses the classic protocol keeps its subscriptions in its record."""
    key, value = as_bytes(
        5,
        MEMBER_KEY,
        "0000 00 00 01 01 01 00 00000000 00 01 00 15 01 0000afc8 02 02 72 0b 0000 00000000 ffffffff 00 00",
    )
    (protocol,) = describe_record(key, value)["value"]["data"]["classicMemberMetadata"]["supportedProtocols"]
    (raw,) = describe_record(key, value, raw=True)["value"]["data"]["classicMemberMetadata"]["supportedProtocols"]

    assert protocol == {"name": "r", "metadata": {"version": 0, "data": {"topics": [], "userData": None}}}
    assert raw == {"name": "r", "metadata": "AAAAAAAA/////w=="}


GROUP_EPOCH = TypedRecord(RecordType.CONSUMER_GROUP_METADATA, {"groupId": "g1"}, 0, {"epoch": 1})


@as_one_test
@pytest.mark.parametrize(
    "record",
    [
        evolve(GROUP_EPOCH, version=1),
        evolve(GROUP_EPOCH, version=None),
        evolve(GROUP_EPOCH, key={}),
        evolve(GROUP_EPOCH, key={"groupId": "g" * 32_768}),
        evolve(GROUP_EPOCH, key={"groupId": None}),
        evolve(GROUP_EPOCH, key={"groupId": "\ud800"}),
        evolve(GROUP_EPOCH, value={}),
        evolve(GROUP_EPOCH, value={"epoch": 2**31}),
        evolve(GROUP_EPOCH, value={"epoch": "1"}),
        TypedRecord(
            RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
            {"groupId": "g1", "memberId": "m1"},
            0,
            {"topicPartitions": [{"topicId": "short", "partitions": []}]},
        ),
    ],
)
def test_what_can_not_be_built(record: TypedRecord) -> None:
    """A missing field, a value that does not fit and an unknown version have one error, which names the type."""
    with pytest.raises(RecordEncodingError, match=record.type.name):
        build_record(record)


def test_records_are_printed_as_kafka_prints_them() -> None:
    """For every type and version, raw, the JSON is what Kafka 4.4's formatters for console consumers print."""
    lines = (Path(__file__).parent / "formatter.jsonl").read_text().splitlines()
    seen = set()
    for entry in map(json.loads, lines):
        key, value = bytes.fromhex(entry["key"]), entry["value"]
        described = describe_record(key, None if value is None else bytes.fromhex(value), raw=True)
        assert described == entry["printed"]
        assert list(described["key"]["data"]) == list(entry["printed"]["key"]["data"])
        seen.add((described["key"]["type"], None if described["value"] is None else described["value"]["version"]))
    versions = {(record_type, version) for record_type, s in SCHEMAS.items() for version in range(s.newest_version + 1)}
    assert seen == versions | {(record_type, None) for record_type in RecordType}


@pytest.mark.parametrize("field", ["x", "x int32[", "x int32 3", "x int32 = ", "x int32 y int32"])
def test_malformed_schemas(field: str) -> None:
    with pytest.raises(ValueError, match="is no field"):
        parse_structures(f"Point: {field}", made={})
