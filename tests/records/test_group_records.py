"""Records of groups: golden bytes of Kafka's classes both ways, what a broker wrote, and what is malformed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from attrs import evolve

from groupcoord.core.log.records import (
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMetadataRecord,
    ConsumerGroupPartitionMetadataRecord,
    ConsumerGroupRegularExpressionRecord,
    ConsumerGroupTargetAssignmentMemberRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
    CopartitionGroup,
    Endpoint,
    GroupMetadataRecord,
    GroupRecord,
    GroupTombstone,
    OffsetCommitRecord,
    ShareGroupCurrentMemberAssignmentRecord,
    ShareGroupMemberMetadataRecord,
    ShareGroupMetadataRecord,
    ShareGroupStatePartitionMetadataRecord,
    ShareGroupTargetAssignmentMemberRecord,
    ShareGroupTargetAssignmentMetadataRecord,
    StreamsGroupCurrentMemberAssignmentRecord,
    StreamsGroupMemberMetadataRecord,
    StreamsGroupMetadataRecord,
    StreamsGroupTargetAssignmentMemberRecord,
    StreamsGroupTargetAssignmentMetadataRecord,
    StreamsGroupTopologyRecord,
    Subtopology,
    TopicPartitions,
)
from groupcoord.records.codec import RECORD_CLASSES, TYPES, RecordEncodingError, decode_record, encode_record
from groupcoord.records.typed import build_record, parse_record
from tests.tables import as_one_test

from .broker_segment import segment_records
from .consumer_group_records import (
    CONSUMER_GROUP_GOLDEN,
    EXPRESSION,
    GROUP,
    ID,
    MEMBER,
    MEMBER_VALUE,
    OF_CONSUMER_PROTOCOL,
    STABLE,
    TOPIC_ID,
)
from .share_group_records import SHARE_GROUP_GOLDEN
from .streams_group_records import STREAMS_GROUP_GOLDEN

GOLDEN: Sequence[tuple[str, str, GroupRecord]] = (*CONSUMER_GROUP_GOLDEN, *SHARE_GROUP_GOLDEN, *STREAMS_GROUP_GOLDEN)


@as_one_test
@pytest.mark.parametrize(("key", "value", "record"), GOLDEN)
def test_golden(key: str, value: str, record: GroupRecord) -> None:
    """Kafka's bytes are read as values, and written again; an absent tag stands for what is empty, not for null."""
    key_bytes, value_bytes = bytes.fromhex(key), bytes.fromhex(value)

    assert decode_record(key_bytes, value_bytes) == record
    assert encode_record(record) == (key_bytes, value_bytes)
    typed = parse_record(key_bytes, value_bytes)
    assert typed is not None
    assert build_record(typed) == (key_bytes, value_bytes)


def test_golden_bytes_of_every_kind() -> None:
    assert {type(record) for _, _, record in GOLDEN} == {RECORD_CLASSES[record_type] for record_type in TYPES}
    assert {(int(key[:4], 16), type(record)) for key, _, record in GOLDEN} == {
        (record.key[0], type(record)) for _, _, record in GOLDEN
    }


@as_one_test
@pytest.mark.parametrize(
    ("key", "tombstone"),
    [
        (f"0003 {GROUP}", GroupTombstone("g1", ConsumerGroupMetadataRecord.key)),
        (f"0004 {GROUP}", GroupTombstone("g1", ConsumerGroupPartitionMetadataRecord.key)),
        (f"0005 {MEMBER}", GroupTombstone("g1", ConsumerGroupMemberMetadataRecord.key_of("m1"))),
        (f"0006 {GROUP}", GroupTombstone("g1", ConsumerGroupTargetAssignmentMetadataRecord.key)),
        (f"0007 {MEMBER}", GroupTombstone("g1", ConsumerGroupTargetAssignmentMemberRecord.key_of("m1"))),
        (f"0008 {MEMBER}", GroupTombstone("g1", ConsumerGroupCurrentMemberAssignmentRecord.key_of("m1"))),
        (f"000a {MEMBER}", GroupTombstone("g1", ShareGroupMemberMetadataRecord.key_of("m1"))),
        (f"000b {GROUP}", GroupTombstone("g1", ShareGroupMetadataRecord.key)),
        (f"000c {GROUP}", GroupTombstone("g1", ShareGroupTargetAssignmentMetadataRecord.key)),
        (f"000d {MEMBER}", GroupTombstone("g1", ShareGroupTargetAssignmentMemberRecord.key_of("m1"))),
        (f"000e {MEMBER}", GroupTombstone("g1", ShareGroupCurrentMemberAssignmentRecord.key_of("m1"))),
        (f"000f {GROUP}", GroupTombstone("g1", ShareGroupStatePartitionMetadataRecord.key)),
        (f"0010 {EXPRESSION}", GroupTombstone("g1", ConsumerGroupRegularExpressionRecord.key_of("t.*"))),
        (f"0011 {GROUP}", GroupTombstone("g1", StreamsGroupMetadataRecord.key)),
        (f"0013 {MEMBER}", GroupTombstone("g1", StreamsGroupMemberMetadataRecord.key_of("m1"))),
        (f"0014 {GROUP}", GroupTombstone("g1", StreamsGroupTargetAssignmentMetadataRecord.key)),
        (f"0015 {MEMBER}", GroupTombstone("g1", StreamsGroupTargetAssignmentMemberRecord.key_of("m1"))),
        (f"0016 {MEMBER}", GroupTombstone("g1", StreamsGroupCurrentMemberAssignmentRecord.key_of("m1"))),
        (f"0017 {GROUP}", GroupTombstone("g1", StreamsGroupTopologyRecord.key)),
    ],
)
def test_tombstones(key: str, tombstone: GroupTombstone) -> None:
    """A key without a value is the tombstone of just that record."""
    assert decode_record(bytes.fromhex(key), None) == tombstone
    assert encode_record(tombstone) == (bytes.fromhex(key), None)


@as_one_test
@pytest.mark.parametrize(
    ("key", "value", "record"),
    [
        (f"0003 {GROUP}", "0000 00000002 01 07 02 abcd", ConsumerGroupMetadataRecord("g1", 2)),
        (f"0003 {GROUP}", "0000 00000002 01 00 08 0000000000000000", ConsumerGroupMetadataRecord("g1", 2)),
        (f"0003 {GROUP}", "0000 00000002 8000", ConsumerGroupMetadataRecord("g1", 2)),
        (f"0005 {MEMBER}", f"{MEMBER_VALUE} 02 00 01 00 05 01 ff", OF_CONSUMER_PROTOCOL),
        (
            f"0007 {MEMBER}",
            f"0000 02 {ID} 02 00000000 01 05 01 ff 00",
            ConsumerGroupTargetAssignmentMemberRecord("g1", "m1", (TopicPartitions(TOPIC_ID, (0,)),)),
        ),
        (f"0008 {MEMBER}", "0000 00000002 00000001 00 01 01 01 05 01 ff", STABLE),
        (f"0011 {GROUP}", "0000 00000002 0000000000000000 01 07 02 abcd", StreamsGroupMetadataRecord("g1", 2)),
        (f"0011 {GROUP}", "0000 00000002 0000000000000000 01 00 04 ffffffff", StreamsGroupMetadataRecord("g1", 2)),
        (f"0011 {GROUP}", "0000 00000002 0000000000000000 01 01 01 01", StreamsGroupMetadataRecord("g1", 2)),
        (f"0015 {MEMBER}", "0000 01 01 01 01 05 01 ff", StreamsGroupTargetAssignmentMemberRecord("g1", "m1")),
    ],
)
def test_what_only_the_bytes_tell_is_kept(key: str, value: str, record: GroupRecord) -> None:
    """Tags of later versions, defaults that are written out and long varints are read as by Kafka, and are kept."""
    key_bytes, value_bytes = bytes.fromhex(key), bytes.fromhex(value)
    decoded = decode_record(key_bytes, value_bytes)

    assert decoded == evolve(record, raw_value=value_bytes)
    assert encode_record(decoded) == (key_bytes, value_bytes)


@as_one_test
@pytest.mark.parametrize(
    "record",
    [
        ConsumerGroupMetadataRecord("g", 2**31),
        ConsumerGroupMetadataRecord("g", 0, 2**63),
        ConsumerGroupMetadataRecord("g" * 32_768, 0),
        evolve(OF_CONSUMER_PROTOCOL, subscribed_topic_names=("\ud800",)),
        evolve(OF_CONSUMER_PROTOCOL, member_id="m" * 32_768),
        evolve(STABLE, state=128),
        ConsumerGroupTargetAssignmentMemberRecord("g", "m", (TopicPartitions(TOPIC_ID, (2**31,)),)),
        StreamsGroupMetadataRecord("g", 0, validated_topology_epoch=2**31),
        StreamsGroupMemberMetadataRecord("g", "m", None, None, "", "", user_endpoint=Endpoint("h", 65_536)),
        StreamsGroupTopologyRecord("g", 0, (Subtopology("0", copartition_groups=(CopartitionGroup((2**15,)),)),)),
        GroupTombstone("g", (9, "")),
        GroupTombstone("g", (3, "m")),
        GroupTombstone("g", (23, "m")),
    ],
)
def test_what_no_field_can_hold(record: GroupRecord | GroupTombstone) -> None:
    """Values that don't fit their field, and tombstones of records that there are not, raise an error."""
    with pytest.raises(RecordEncodingError):
        encode_record(record)


def test_what_a_broker_wrote() -> None:
    """Each record of a real segment is understood without its bytes, and written byte for byte as it was."""
    seen: Counter[type] = Counter()
    tombstones: Counter[int] = Counter()
    for _, key, value in segment_records():
        record = decode_record(key, value)
        assert encode_record(record) == (key, value)
        assert getattr(record, "raw_value", None) is None
        seen[type(record)] += 1
        if isinstance(record, GroupTombstone):
            tombstones[record.key[0]] += 1

    assert seen == {
        OffsetCommitRecord: 6,
        GroupMetadataRecord: 5,
        ConsumerGroupMetadataRecord: 19,
        ConsumerGroupPartitionMetadataRecord: 2,
        ConsumerGroupMemberMetadataRecord: 10,
        ConsumerGroupTargetAssignmentMetadataRecord: 15,
        ConsumerGroupTargetAssignmentMemberRecord: 19,
        ConsumerGroupCurrentMemberAssignmentRecord: 24,
        ConsumerGroupRegularExpressionRecord: 3,
        GroupTombstone: 35,
    }
    assert tombstones == {2: 1, 3: 1, 4: 3, 5: 9, 6: 1, 7: 9, 8: 9, 16: 2}


def test_a_member_of_the_classic_protocol_in_a_consumer_group() -> None:
    """Of those that a real broker wrote, a member that joined with the classic protocol has kept what it sent."""
    members = [
        record
        for record in (decode_record(key, value) for _, key, value in segment_records())
        if isinstance(record, ConsumerGroupMemberMetadataRecord) and record.group_id == "moves"
    ]
    classic, modern = members[0].classic_member_metadata, members[-1].classic_member_metadata

    assert classic is not None
    assert classic.session_timeout_ms == 20_000
    assert [name for name, _ in classic.supported_protocols] == ["range"]
    assert modern is None
